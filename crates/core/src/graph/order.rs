//! Consumers of nodes and topological order. Back edges of loops are ignored.

use super::{Graph, NodeId};
use crate::op::OpClass;
use crate::{Result, bail};

impl Graph {
    /// The consumers of each node, control edges included; a node that consumes another one twice is listed twice.
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.node_count()];
        for id in self.ids() {
            self.node(id).sources().for_each(|source| consumers[source.index()].push(id));
        }
        consumers
    }

    /// Every node after its inputs, except that a merge comes before the `NextIteration` that feeds it. Otherwise nodes
    /// keep the order in which they were added. The error names a node of a cycle.
    pub fn topological_order(&self) -> Result<Vec<NodeId>> {
        let mut waiting = vec![0u32; self.node_count()];
        let mut consumers: Vec<Vec<NodeId>> = vec![Vec::new(); self.node_count()];
        for id in self.ids() {
            let node = self.node(id);
            let is_merge = matches!(node.data.class(), OpClass::Merge | OpClass::RefMerge);
            for source in node.sources() {
                if is_merge && self.node(source).data.class() == OpClass::NextIteration {
                    continue;
                }
                waiting[id.index()] += 1;
                consumers[source.index()].push(id);
            }
        }
        let mut ready: std::collections::VecDeque<NodeId> =
            self.ids().filter(|id| waiting[id.index()] == 0).collect();
        let mut order = Vec::with_capacity(self.node_count());
        while let Some(id) = ready.pop_front() {
            order.push(id);
            for consumer in &consumers[id.index()] {
                let left = &mut waiting[consumer.index()];
                *left -= 1;
                if *left == 0 {
                    ready.push_back(*consumer);
                }
            }
        }
        if order.len() < self.node_count() {
            let stuck = self.ids().find(|id| waiting[id.index()] > 0).expect("some node is not in the order");
            bail!(
                InvalidArgument,
                "Graph is invalid, contains a cycle with {} nodes, including: {}",
                self.node_count() - order.len(),
                self.node(stuck).data.name
            );
        }
        Ok(order)
    }
}
