//! Gates without a value on a node without a GPU.

use super::catalogue::Parser;
use super::gate::{Gate, Limit};
use super::resolve::or_more;

/// The profile's counts of GPUs, alone or beside the rails.
const NUMBERS: [&str; 3] = ["profile:gpus", "profile:ranks", "profile:pcie.rails"];

impl Gate {
    /// Returns whether the gate measures GPUs: by the parser, or by a count or limit with the number
    /// of GPUs.
    pub fn measures_gpus(&self) -> bool {
        let is_number = |text: &str| NUMBERS.contains(&or_more(text).0);
        let counts = self.count.as_deref().is_some_and(is_number);
        let compares = self.criteria.iter().any(|criterion| {
            let limit = match &criterion.limit {
                Limit::Text(text) => is_number(text),
                Limit::Number(_) => false,
            };
            limit || criterion.best.as_deref().is_some_and(is_number)
        });
        counts || compares || Parser::find(&self.parser).is_some_and(Parser::reads_gpus)
    }
}

#[cfg(test)]
mod tests {
    use crate::gates::{Gate, SUITES, Shipped, Suite};

    fn gate(suite: &str, id: &str) -> Gate {
        let text = Shipped::find(SUITES, suite).expect("a suite").text;
        let suite: Suite = toml::from_str(text).expect("the shipped suite");
        let gate = suite.gates.into_iter().find(|gate| gate.id == id);
        gate.expect("the shipped gate")
    }

    #[test]
    fn gates_of_gpus_are_told_from_gates_of_the_host() {
        for (suite, id, wanted) in [
            ("admit", "gpu.inventory", true),
            ("admit", "gpu.spares", true),
            ("admit", "pcie.rails", true),
            ("admit", "nccl.all_reduce", true),
            ("admit", "inventory.facts", false),
            ("admit", "kernel.log", false),
            ("admit", "disk.smart", false),
            ("admit", "host.memory", false),
            ("admit", "software.packages", false),
            ("admit-amd", "inventory.facts", false),
            ("software-gpu", "software.module", false),
            ("software-gpu", "software.kernel_accepts", false),
        ] {
            assert_eq!(gate(suite, id).measures_gpus(), wanted, "{suite}: {id}");
        }
        // The number of GPUs alone, with a parser of the host.
        let mut gate = gate("admit", "kernel.log");
        gate.count = Some(">=profile:gpus".into());
        assert!(gate.measures_gpus());
    }
}
