"""The web console: a process of its own that shows a cluster and steers it.

docs/spec/console.md says what it is for, docs/spec/console-api.md what it serves. Nothing here is
imported by a broker: `odradek console` and `odradek up --console` start it.

| module | its job |
|---|---|
| `options`, `server` | what it may listen on; the HTTP server |
| `app`, `routes`, `web`, `openapi` | requests and answers |
| `access`, `accounts`, `audit` | who may do what, and who did what |
| `link`, `broker_http` | the cluster, over Kafka's protocol and its brokers' HTTP listeners |
| `picture`, `collector` | the last state of everything, and how it is kept up to date |
| `views` | a module for each group of questions |
"""
