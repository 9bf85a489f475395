"""Who a client is and what it may do: principals, SASL exchanges, TLS contexts and ACL decisions.

Everything here is a function over values or a small state machine fed with bytes: no sockets, no
store, no event loop. The broker, the client and the command line put the same pieces to work.
docs/spec/security.md.
"""
