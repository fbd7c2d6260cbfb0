//! A constant through a server: the smallest program.
//!
//! ```text
//! cargo run --example hello
//! ```

use ferroflow::{Graph, Result, Server, Session};

/// Says hello.
pub(crate) fn run() -> Result<String> {
    let graph = Graph::new();
    let hello = graph.scope().constant("Hello, distributed TensorFlow!")?;

    // A cluster of one. Programs in Python may open sessions on its target, too.
    let server = Server::local()?;
    let session = Session::connect(server.target(), &graph)?;
    let text = session.eval(&hello)?;
    Ok(String::from_utf8_lossy(&text.to_scalar::<bytes::Bytes>()?).into_owned())
}

fn main() -> Result<()> {
    println!("{}", run()?);
    Ok(())
}
