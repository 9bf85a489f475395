"""`odradek demo`: a cluster, a stream of clicks, a Spark pipeline that lands it, and an audit."""
