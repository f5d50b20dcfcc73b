//! `stacks/packages`: packages of other projects, packed from small programs, and locked by the
//! real apt. This file has the built programs of a package.

mod arguments; // Wrong arguments of the build
mod lock; // A package in a lock
mod pack; // The package of built programs
mod sources; // Tarballs of sources

use super::recipes::{BUILT, Ended, Recipe, line, make_repository, split};
use super::*;

/// Installed packages of the system that built the programs.
const INSTALLED: &str =
    "libc6 2.41-12+deb13u5\nlibcublas12 12.4.5.8~12.4.1-2\nlibnccl2 2.22.3-1-1\n";
const LICENCE: &str = "a licence\n";

/// Makes the folder of a test, with a file of installed packages.
fn make_folder() -> Recipe {
    let recipe = Recipe::of("packages");
    recipe.write("installed", INSTALLED);
    recipe
}

/// Writes the tree of a package: a program, which needs a library of this name, and the licence.
fn make_tree(recipe: &Recipe, tree: &str, package: &str, library: Option<&str>) {
    std::fs::create_dir_all(recipe.path(&format!("{tree}/usr/bin"))).unwrap();
    let program = format!("{tree}/usr/bin/{package}");
    match library {
        Some(library) => {
            let name = format!("-Wl,-soname,{library}");
            recipe.write("library.c", "int answer(void) { return 0; }\n");
            recipe.tool("gcc", &["-shared", &name, "-o", library, "library.c"]);
            let text = "int answer(void);\nint main(void) { return answer(); }\n";
            recipe.write("program.c", text);
            let library = format!("./{library}");
            recipe.tool("gcc", &["-o", &program, "program.c", &library]);
        }
        None => {
            recipe.write("program.c", "int main(void) { return 0; }\n");
            recipe.tool("gcc", &["-o", &program, "program.c"]);
        }
    }
    let licence = format!("{tree}/usr/share/doc/{package}/copyright");
    recipe.write(&licence, LICENCE);
}

/// Packs a tree. The last value of a repeated argument counts.
fn pack_tree(recipe: &Recipe, package: &str, arguments: &[&str]) -> Ended {
    let fixed = [
        "--package",
        package,
        "--upstream",
        "2.19.6",
        "--tree",
        "tree",
        "--installed",
        "installed",
        "--time",
        BUILT,
    ];
    recipe.run("pack", &[&fixed[..], arguments].concat())
}
