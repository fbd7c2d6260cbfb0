//! Graphs as text, one line per node, for planning tests and for debugging.
//!
//! `name = Op(input, input:1, ^control) @device`. Attributes are left out.

use super::Graph;
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.nodes() {
            let inputs = node.inputs.iter().map(|input| self.output_name(*input));
            let controls = node.controls.iter().map(|id| format!("^{}", self.node(*id).data.name));
            let list: Vec<String> = inputs.chain(controls).collect();
            write!(f, "{} = {}({})", node.data.name, node.data.op_name(), list.join(", "))?;
            if !node.data.device.is_empty() {
                write!(f, " @{}", node.data.device)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
