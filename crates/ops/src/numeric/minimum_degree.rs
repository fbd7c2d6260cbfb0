//! The approximate minimum degree ordering of Amestoy, Davis and Duff: the order in which the rows and columns of a
//! symmetric sparse matrix are eliminated so that its Cholesky factor stays sparse.
//!
//! Eliminated nodes become *elements*, which stand for the cliques that elimination would leave. Nodes with the same
//! neighbors are merged. Where several nodes have the smallest degree, the last one that got it goes first, so the order
//! of all lists here decides about the result; it is the one that stock gets from Eigen.

use std::collections::HashMap;

const NONE: usize = usize::MAX;

/// A node or an element of the quotient graph.
#[derive(Clone, Default)]
struct Vertex {
    /// Adjacent elements of a node; nodes come after them in order.
    elements: Vec<usize>,
    /// Adjacent nodes of a node, or the nodes of an element.
    nodes: Vec<usize>,
    /// An upper bound of the number of neighbors; of an element, the number of its nodes with merged ones.
    degree: usize,
    /// The number of nodes that were merged into this one; 0 once it is merged into another.
    weight: usize,
    /// The vertex that this one was merged into or absorbed by.
    parent: usize,
    is_element: bool,
    /// False for elements that are absorbed.
    alive: bool,
}

/// Lists of nodes by degree.
struct DegreeLists {
    head: Vec<usize>,
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl DegreeLists {
    fn new(count: usize) -> DegreeLists {
        DegreeLists { head: vec![NONE; count + 1], next: vec![NONE; count], previous: vec![NONE; count] }
    }

    fn push(&mut self, node: usize, degree: usize) {
        let first = self.head[degree];
        if first != NONE {
            self.previous[first] = node;
        }
        (self.next[node], self.previous[node]) = (first, NONE);
        self.head[degree] = node;
    }

    fn remove(&mut self, node: usize, degree: usize) {
        let (next, previous) = (self.next[node], self.previous[node]);
        if next != NONE {
            self.previous[next] = previous;
        }
        if previous == NONE {
            self.head[degree] = next;
        } else {
            self.next[previous] = next;
        }
    }
}

/// The order of a matrix of which these are the entries by column, in ascending order, with both triangles and the
/// diagonal. `check` is asked before every elimination whether to go on.
pub(crate) fn minimum_degree<E>(
    columns: Vec<Vec<usize>>,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<Vec<usize>, E> {
    let count = columns.len();
    let mut graph = QuotientGraph::new(columns);
    while graph.eliminated < count {
        check()?;
        graph.eliminate();
    }
    Ok(graph.postorder())
}

struct QuotientGraph {
    vertices: Vec<Vertex>,
    lists: DegreeLists,
    /// The number of nodes without the last one, which stands for all dense nodes.
    count: usize,
    eliminated: usize,
    smallest: usize,
    /// Marks of vertices, which count if they are at least `mark`.
    marks: Vec<usize>,
    mark: usize,
    /// Whether a node is in the element that is being made.
    taken: Vec<bool>,
}

impl QuotientGraph {
    fn new(columns: Vec<Vec<usize>>) -> QuotientGraph {
        let count = columns.len();
        // Nodes with more neighbors would only slow everything down; they are eliminated last.
        let dense = (10.0 * (count as f64).sqrt()).max(16.0) as i64;
        let dense = dense.min(count as i64 - 2);
        let mut lists = DegreeLists::new(count);
        let mut vertices = Vec::with_capacity(count + 1);
        let mut eliminated = 0;
        let mut last = Vertex { weight: 1, parent: NONE, is_element: true, ..Vertex::default() };
        for (node, column) in columns.into_iter().enumerate() {
            let degree = column.len();
            let has_diagonal = column.contains(&node);
            let mut vertex = Vertex { degree, weight: 1, parent: NONE, alive: true, ..Vertex::default() };
            if degree == 1 && has_diagonal {
                (vertex.is_element, vertex.alive) = (true, false);
                eliminated += 1;
            } else if degree as i64 > dense || !has_diagonal {
                (vertex.weight, vertex.parent, vertex.alive) = (0, count, false);
                last.weight += 1;
                eliminated += 1;
            } else {
                vertex.nodes = column;
                lists.push(node, degree);
            }
            vertices.push(vertex);
        }
        vertices.push(last);
        QuotientGraph {
            vertices,
            lists,
            count,
            eliminated,
            smallest: 0,
            marks: vec![0; count + 1],
            mark: 1,
            taken: vec![false; count + 1],
        }
    }

    /// Makes an element of a node of the smallest degree.
    fn eliminate(&mut self) {
        while self.lists.head[self.smallest] == NONE {
            self.smallest += 1;
        }
        let pivot = self.lists.head[self.smallest];
        self.lists.remove(pivot, self.smallest);
        self.eliminated += self.vertices[pivot].weight;
        let mut members = self.take_members(pivot);
        self.measure_differences(&members);
        let mut size = self.vertices[pivot].degree;
        let buckets = self.update_members(pivot, &members, &mut size);
        self.vertices[pivot].degree = size;
        self.mark += self.count + 1;
        self.merge_equal(&members, &buckets);
        members.retain(|member| self.vertices[*member].weight > 0);
        for member in &members {
            let vertex = &mut self.vertices[*member];
            self.taken[*member] = false;
            let others = self.count - self.eliminated - vertex.weight;
            vertex.degree = (vertex.degree + size - vertex.weight).min(others);
            self.lists.push(*member, vertex.degree);
            self.smallest = self.smallest.min(vertex.degree);
        }
        self.taken[pivot] = false;
        self.vertices[pivot].alive = !members.is_empty();
        self.vertices[pivot].nodes = members;
    }

    /// The nodes next to the pivot and in its elements, which it absorbs. They leave their lists.
    fn take_members(&mut self, pivot: usize) -> Vec<usize> {
        self.taken[pivot] = true;
        let elements = std::mem::take(&mut self.vertices[pivot].elements);
        let (mut members, mut size) = (Vec::new(), 0);
        for source in elements.into_iter().chain([pivot]) {
            let nodes = std::mem::take(&mut self.vertices[source].nodes);
            for node in nodes {
                let vertex = &self.vertices[node];
                if vertex.weight == 0 || vertex.is_element || self.taken[node] {
                    continue;
                }
                size += vertex.weight;
                self.taken[node] = true;
                self.lists.remove(node, vertex.degree);
                members.push(node);
            }
            if source != pivot {
                (self.vertices[source].parent, self.vertices[source].alive) = (pivot, false);
            }
        }
        let vertex = &mut self.vertices[pivot];
        (vertex.degree, vertex.is_element) = (size, true);
        members
    }

    /// Marks every element next to a member with the number of its nodes that are not members.
    fn measure_differences(&mut self, members: &[usize]) {
        for member in members {
            let weight = self.vertices[*member].weight;
            for element in &self.vertices[*member].elements {
                if self.marks[*element] >= self.mark {
                    self.marks[*element] -= weight;
                } else if self.vertices[*element].alive {
                    self.marks[*element] = self.mark + self.vertices[*element].degree - weight;
                }
            }
        }
    }

    /// Replaces what members have in common by the new element. Returns a hash of the neighbors of each.
    fn update_members(&mut self, pivot: usize, members: &[usize], size: &mut usize) -> Vec<usize> {
        let mut hashes = vec![0; members.len()];
        for (member, hash) in members.iter().zip(&mut hashes) {
            let mut degree = 0;
            let mut elements = std::mem::take(&mut self.vertices[*member].elements);
            elements.retain(|element| {
                if !self.vertices[*element].alive {
                    return false;
                }
                let difference = self.marks[*element] - self.mark;
                if difference == 0 {
                    // All its nodes are in the new element.
                    (self.vertices[*element].parent, self.vertices[*element].alive) = (pivot, false);
                    return false;
                }
                degree += difference;
                *hash += element;
                true
            });
            let mut nodes = std::mem::take(&mut self.vertices[*member].nodes);
            nodes.retain(|node| {
                let vertex = &self.vertices[*node];
                if vertex.weight == 0 || vertex.is_element || self.taken[*node] {
                    return false;
                }
                degree += vertex.weight;
                *hash += node;
                true
            });
            if degree == 0 {
                // Nothing is left besides the element, so that it is eliminated together with the pivot.
                let weight = std::mem::take(&mut self.vertices[*member].weight);
                self.vertices[*member].parent = pivot;
                self.taken[*member] = false;
                *size -= weight;
                self.vertices[pivot].weight += weight;
                self.eliminated += weight;
                continue;
            }
            if !elements.is_empty() {
                elements.rotate_left(1);
            }
            if !nodes.is_empty() {
                nodes.rotate_left(1);
            }
            elements.insert(0, pivot);
            let vertex = &mut self.vertices[*member];
            vertex.degree = vertex.degree.min(degree);
            (vertex.elements, vertex.nodes) = (elements, nodes);
        }
        hashes
    }

    /// Merges members that have the same neighbors.
    fn merge_equal(&mut self, members: &[usize], hashes: &[usize]) {
        // The last member comes first in its bucket.
        let mut buckets: HashMap<usize, Vec<usize>> = HashMap::new();
        for (member, hash) in members.iter().zip(hashes).rev() {
            if self.vertices[*member].weight > 0 {
                buckets.entry(*hash).or_default().push(*member);
            }
        }
        for hash in hashes {
            let Some(mut bucket) = buckets.remove(hash) else { continue };
            while bucket.len() > 1 {
                let first = bucket.remove(0);
                let vertex = &self.vertices[first];
                let (elements, nodes) = (vertex.elements.len(), vertex.nodes.len());
                for neighbor in vertex.elements.iter().chain(&vertex.nodes) {
                    self.marks[*neighbor] = self.mark;
                }
                bucket.retain(|other| {
                    let candidate = &self.vertices[*other];
                    let same = (candidate.elements.len(), candidate.nodes.len()) == (elements, nodes)
                        && candidate
                            .elements
                            .iter()
                            .chain(&candidate.nodes)
                            .all(|n| self.marks[*n] == self.mark);
                    if same {
                        let weight = std::mem::take(&mut self.vertices[*other].weight);
                        self.vertices[first].weight += weight;
                        self.vertices[*other].parent = first;
                        self.taken[*other] = false;
                    }
                    !same
                });
                self.mark += 1;
            }
        }
    }

    /// The nodes in the order of elimination: children before their parents, in the tree of what absorbed what.
    fn postorder(mut self) -> Vec<usize> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.count + 1];
        // Children are taken from the end: elements in ascending order, then merged nodes.
        for merged in [true, false] {
            for vertex in (0..=self.count).rev() {
                let parent = self.vertices[vertex].parent;
                if (self.vertices[vertex].weight == 0) == merged && parent != NONE {
                    children[parent].push(vertex);
                }
            }
        }
        self.vertices[self.count].parent = NONE;
        let mut order = Vec::with_capacity(self.count + 1);
        for root in (0..=self.count).filter(|vertex| self.vertices[*vertex].parent == NONE) {
            let mut stack = vec![root];
            while let Some(top) = stack.last().copied() {
                match children[top].pop() {
                    Some(child) => stack.push(child),
                    None => order.extend(stack.pop()),
                }
            }
        }
        order.retain(|node| *node < self.count);
        order
    }
}
