//! The libFuzzer program: one input at a time, to the target that MUSTER_FUZZ names.

#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<muster_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("MUSTER_FUZZ").unwrap_or_default();
    muster_fuzz::find(&name).unwrap_or_else(|| {
        panic!(
            "MUSTER_FUZZ={name:?} is not one of {}",
            muster_fuzz::names()
        )
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
