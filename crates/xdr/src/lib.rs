//! External Data Representation (RFC 4506): bounded, allocation-aware coding without I/O.
