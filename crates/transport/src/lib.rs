//! Sockets and TLS: pipelined ONC RPC over TCP for clients and servers.
