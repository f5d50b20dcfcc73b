//! Every kept input, through its target: what fuzzing found once is not found again.

use std::fs;
use std::path::Path;

#[test]
fn kept_inputs_break_nothing() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in muster_fuzz::TARGETS {
        let folder = corpora.join(target.name);
        let mut inputs: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        inputs.sort();
        assert!(
            inputs.len() >= 3,
            "{} keeps too few inputs to start from",
            target.name
        );
        for input in inputs {
            // The name, for a reader of a failure: the panic itself knows only the bytes.
            println!("{}", input.display());
            (target.run)(&fs::read(&input).expect("a readable file"));
        }
    }
}
