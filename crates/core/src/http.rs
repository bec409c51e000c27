//! Speaking HTTP to an MCP server: every decision of the bridge, and the formats that it reads.
//!
//! It refuses to know sockets, TLS and files: whoever waits for those tells it what came, and does what it asks for.

pub mod base64;
pub mod bridge;
pub mod dns;
pub mod headers;
pub mod lines;
pub mod sse;
pub mod words;
