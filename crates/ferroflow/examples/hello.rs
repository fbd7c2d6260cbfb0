//! The smallest program: a constant, evaluated by a server.
//!
//! ```text
//! cargo run --example hello
//! ```

use ferroflow::{Graph, Result, Server, Session};

/// Returns the greeting that the server computed.
pub(crate) fn run() -> Result<String> {
    let graph = Graph::new();
    let hello = graph.scope().constant("Hello, distributed TensorFlow!")?;

    // A cluster of one task. Python programs can open sessions on its target, too.
    let server = Server::local()?;
    let session = Session::connect(server.target(), &graph)?;
    let text = session.eval(&hello)?;
    Ok(String::from_utf8_lossy(&text.to_scalar::<bytes::Bytes>()?).into_owned())
}

fn main() -> Result<()> {
    println!("{}", run()?);
    Ok(())
}
