//! Items of a stack for nodes with certain hardware only, so that one stack serves machines with and
//! without a GPU.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{ServiceItem, StackSpec};
use crate::facts::Facts;

/// Items for nodes with certain hardware only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// Items for nodes with at least one GPU, by the newest facts of the node.
    #[serde(skip_serializing_if = "ConditionalItems::is_empty")]
    pub gpu: ConditionalItems,
}

/// The items of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ConditionalItems {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules_load: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceItem>,
}

impl Conditions {
    /// Returns whether the stack is the same for all nodes.
    pub fn is_empty(&self) -> bool {
        self.gpu.is_empty()
    }
}

impl ConditionalItems {
    fn is_empty(&self) -> bool {
        self.modules_load.is_empty() && self.services.is_empty()
    }
}

impl StackSpec {
    /// Returns the stack with the items of all conditions, as the rules judge the stack.
    pub fn with_conditional_items(&self) -> Cow<'_, Self> {
        match self.when.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(self.apply_conditions(true)),
        }
    }

    /// Returns the stack for a node with these facts, without conditions.
    ///
    /// # Errors
    /// The reason, for a person: the stack has conditions, and the facts are unknown.
    pub fn for_node(&self, facts: Option<&Facts>) -> Result<Cow<'_, Self>, String> {
        match (self.when.is_empty(), facts) {
            (true, _) => Ok(Cow::Borrowed(self)),
            (false, Some(facts)) => Ok(Cow::Owned(self.apply_conditions(!facts.gpus.is_empty()))),
            (false, None) => Err(
                "the stack has items for nodes with a GPU, and the hardware of the node is unknown: inspect the node"
                    .to_owned(),
            ),
        }
    }

    fn apply_conditions(&self, has_gpu: bool) -> Self {
        let mut whole = self.clone();
        let Conditions { gpu } = std::mem::take(&mut whole.when);
        if has_gpu {
            let own = |module: &String| !self.modules_load.contains(module);
            let modules = gpu.modules_load.into_iter().filter(own);
            whole.modules_load.extend(modules);
            whole.services.extend(gpu.services);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Gpu;

    const STACK: &str = r#"
        version = "1"
        image = "i"
        modules_load = ["lnet"]
        [when.gpu]
        modules_load = ["nvidia", "lnet"]
        services = [{ name = "nvidia-persistenced.service", enabled = true, running = true }]
    "#;

    fn stack() -> StackSpec {
        toml::from_str(STACK).expect("a stack")
    }

    fn names(stack: &StackSpec) -> (Vec<&str>, Vec<&str>) {
        let services = stack.services.iter().map(|service| service.name.as_str());
        let modules = stack.modules_load.iter().map(String::as_str);
        (modules.collect(), services.collect())
    }

    #[test]
    fn a_node_with_a_gpu_gets_the_items_and_a_node_without_gets_none() {
        let stack = stack();
        let bare = stack.for_node(Some(&Facts::default())).expect("known");
        assert_eq!(names(&bare), (vec!["lnet"], vec![]));
        let facts = Facts {
            gpus: vec![Gpu::default()],
            ..Facts::default()
        };
        let whole = stack.for_node(Some(&facts)).expect("known");
        let wanted = (vec!["lnet", "nvidia"], vec!["nvidia-persistenced.service"]);
        assert_eq!(names(&whole), wanted);
        assert!(whole.when.is_empty());
        assert_eq!(names(&stack.with_conditional_items()), wanted);
    }

    #[test]
    fn unknown_hardware_is_refused_only_where_a_condition_asks() {
        let why = stack().for_node(None).expect_err("unknown");
        assert!(why.contains("inspect the node"), "{why}");
        let plain = StackSpec {
            when: Conditions::default(),
            ..stack()
        };
        assert_eq!(plain.for_node(None).as_deref(), Ok(&plain));
    }

    #[test]
    fn an_unknown_condition_and_an_unknown_item_are_refused() {
        for (from, to) in [
            ("[when.gpu]", "[when.fpga]"),
            ("modules_load = [\"nvidia\", \"lnet\"]", "files = []"),
        ] {
            let text = STACK.replace(from, to);
            assert!(toml::from_str::<StackSpec>(&text).is_err(), "{to}");
        }
    }
}
