//! The order of a plan: which nodes can run together, and which must wait. This module does no I/O.

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

/// The maximum number of nodes of one plan.
const MAX_NODES: usize = 64;
/// The maximum length of an id, in characters.
const ID_CHARS: usize = 40;

/// A node of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanNode {
    /// The id: 1 to 40 letters, digits, `_` and `-`.
    pub id: String,
    /// The ids of the nodes that must succeed first.
    pub needs: Vec<String>,
}

/// The reason why a plan cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum PlanError {
    #[error("the plan is empty")]
    Empty,
    #[error("the plan has {0} calls; at most {MAX_NODES} are allowed")]
    TooMany(usize),
    #[error("id {0:?}: 1 to {ID_CHARS} of letters, digits, _ and - are allowed")]
    Id(String),
    #[error("the id {0:?} is given to more than one call")]
    Duplicate(String),
    #[error("{node:?} needs {need:?}, which is not in the plan; its ids are {known}")]
    Unknown { node: String, need: String, known: String },
    #[error("the calls wait for each other, so that none can start: {}", .0.join(" needs "))]
    Cycle(Vec<String>),
}

/// The nodes of a plan in layers. Each node needs only nodes of earlier layers. Nodes are identified by their index in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallPlan {
    pub ids: Vec<String>,
    /// The direct needs of each node, without duplicates.
    pub needs: Vec<Vec<usize>>,
    /// The layers in the order in which they run.
    pub layers: Vec<Vec<usize>>,
}

impl CallPlan {
    /// Sorts `nodes` into layers, each in input order.
    ///
    /// # Errors
    /// The nodes do not form a valid plan; the error names them.
    pub(super) fn new(nodes: &[PlanNode]) -> Result<Self, PlanError> {
        match nodes.len() {
            0 => return Err(PlanError::Empty),
            1..=MAX_NODES => {}
            many => return Err(PlanError::TooMany(many)),
        }
        let mut indices = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if !(1..=ID_CHARS).contains(&node.id.len()) || !node.id.chars().all(safe) {
                return Err(PlanError::Id(node.id.chars().take(2 * ID_CHARS).collect()));
            }
            if indices.insert(node.id.as_str(), index).is_some() {
                return Err(PlanError::Duplicate(node.id.clone()));
            }
        }
        let ids: Vec<String> = nodes.iter().map(|node| node.id.clone()).collect();
        let needs = nodes.iter().map(|node| need_indices(node, &indices, &ids)).collect::<Result<Vec<_>, _>>()?;
        let layers = layers_of(&needs)
            .map_err(|cycle| PlanError::Cycle(cycle.into_iter().map(|index| ids[index].clone()).collect()))?;
        Ok(Self { ids, needs, layers })
    }

    /// Returns all nodes that each node needs, directly or through other nodes.
    pub(super) fn all_needs(&self) -> Vec<BTreeSet<usize>> {
        let mut all = vec![BTreeSet::new(); self.ids.len()];
        for node in self.layers.iter().flatten() {
            let direct = &self.needs[*node];
            all[*node] = direct.iter().flat_map(|need| all[*need].iter().chain([need])).copied().collect();
        }
        all
    }
}

fn need_indices(node: &PlanNode, indices: &HashMap<&str, usize>, ids: &[String]) -> Result<Vec<usize>, PlanError> {
    let mut needs = Vec::new();
    for need in &node.needs {
        let Some(index) = indices.get(need.as_str()) else {
            let need = need.chars().take(2 * ID_CHARS).collect();
            return Err(PlanError::Unknown { node: node.id.clone(), need, known: ids.join(", ") });
        };
        if !needs.contains(index) {
            needs.push(*index);
        }
    }
    Ok(needs)
}

/// Returns the layers. If there is a cycle, returns its nodes instead, with the first one again at the end.
fn layers_of(needs: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<usize>> {
    let mut layers: Vec<Vec<usize>> = Vec::new();
    let mut placed = vec![false; needs.len()];
    while placed.iter().any(|placed| !placed) {
        let free = |node: &usize| !placed[*node] && needs[*node].iter().all(|need| placed[*need]);
        let layer: Vec<usize> = (0..needs.len()).filter(free).collect();
        if layer.is_empty() {
            return Err(find_cycle(needs, &placed));
        }
        layer.iter().for_each(|node| placed[*node] = true);
        layers.push(layer);
    }
    Ok(layers)
}

/// Finds a cycle: follows the needs of unplaced nodes, each of which needs another unplaced one, until a node repeats.
fn find_cycle(needs: &[Vec<usize>], placed: &[bool]) -> Vec<usize> {
    let is_open = |node: &usize| !placed[*node];
    let mut walked: Vec<usize> = Vec::new();
    let mut at = (0..needs.len()).find(is_open);
    while let Some(node) = at {
        if let Some(first) = walked.iter().position(|walked| *walked == node) {
            walked.drain(..first);
            walked.push(node);
            break;
        }
        walked.push(node);
        at = needs[node].iter().copied().find(is_open);
    }
    walked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses `a b:a c:a,b` into nodes.
    fn nodes(text: &str) -> Vec<PlanNode> {
        let node = |word: &str| {
            let (id, needs) = word.split_once(':').unwrap_or((word, ""));
            let needs = needs.split(',').filter(|need| !need.is_empty()).map(str::to_owned).collect();
            PlanNode { id: id.to_owned(), needs }
        };
        text.split_whitespace().map(node).collect()
    }

    #[test]
    fn nodes_form_layers_or_the_error_names_them() {
        let many = (0..65).map(|n| format!("n{n} ")).collect::<String>();
        for (text, expected) in [
            ("a", Ok("a")),
            ("a b c", Ok("a b c")),
            ("a b:a c:b", Ok("a | b | c")),
            ("c:a,b b:a a", Ok("a | b | c")),
            ("top:left,right left:base right:base,base base other", Ok("base other | left right | top")),
            ("", Err("the plan is empty")),
            (many.as_str(), Err("the plan has 65 calls; at most 64 are allowed")),
            ("a b a", Err("the id \"a\" is given to more than one call")),
            ("a.b", Err("id \"a.b\": 1 to 40 of letters, digits, _ and - are allowed")),
            ("a b:x", Err("\"b\" needs \"x\", which is not in the plan; its ids are a, b")),
            ("a:a", Err("the calls wait for each other, so that none can start: a needs a")),
            (
                "x a:x,c b:a c:b d:c",
                Err("the calls wait for each other, so that none can start: a needs c needs b needs a"),
            ),
        ] {
            let plan = CallPlan::new(&nodes(text)).map(|plan| {
                let layer =
                    |layer: &Vec<usize>| layer.iter().map(|n| plan.ids[*n].clone()).collect::<Vec<_>>().join(" ");
                plan.layers.iter().map(layer).collect::<Vec<_>>().join(" | ")
            });
            assert_eq!(plan.map_err(|error| error.to_string()), expected.map(str::to_owned).map_err(str::to_owned));
        }
    }

    proptest! {
        #[test]
        fn each_node_is_in_one_layer_after_all_that_it_needs(
            edges in prop::collection::vec((0_usize..20, 0_usize..20), 0..60),
        ) {
            let needs = |n: usize| edges.iter().filter(|(from, _)| *from == n).map(|(_, to)| to.to_string()).collect();
            let nodes: Vec<_> = (0..20).map(|n| PlanNode { id: n.to_string(), needs: needs(n) }).collect();
            match CallPlan::new(&nodes) {
                Ok(plan) => {
                    let layer_of = |node: usize| plan.layers.iter().position(|layer| layer.contains(&node)).unwrap();
                    prop_assert_eq!(plan.layers.iter().map(Vec::len).sum::<usize>(), 20);
                    prop_assert!(edges.iter().all(|(from, to)| layer_of(*from) > layer_of(*to)));
                }
                Err(PlanError::Cycle(cycle)) => {
                    prop_assert!(cycle.len() > 1 && cycle.first() == cycle.last());
                    let number = |id: &String| id.parse::<usize>().unwrap();
                    prop_assert!(cycle.windows(2).all(|w| edges.contains(&(number(&w[0]), number(&w[1])))));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
