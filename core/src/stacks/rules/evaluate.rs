//! A rule against a stack. Each check has three ends: it holds, it does not, or a fact is missing.

use super::book::{
    BehindRow, Check, FlavourRow, LeastRow, MostRow, Needs, RangeRow, Rule, Rulebook, When, book,
};
use super::packages::{Packages, Present, Subject, families};
use super::version::{compare, first, glob, numbers};
use super::{Finding, Level, outline};
use crate::facts::Facts;
use crate::stacks::StackSpec;

/// What a check came to, where it does not simply hold.
enum Told {
    /// With what is filled into the rule's sentence.
    Wrong(Filled),
    /// What is missing, and stands nowhere that is known of.
    Unknown(String),
    /// What is known not to be there.
    Absent(String),
}

/// What a sentence names.
#[derive(Default)]
struct Filled {
    of: String,
    on: String,
    want: String,
    gpu: String,
    missing: String,
    about: String,
}

/// Everything there is to say of a stack, the worst first: the rules, its own known-bad combinations, whom it is for, and what no node would take.
pub fn findings(subject: Subject<'_>) -> Vec<Finding> {
    let packages = Packages::of(book(), subject);
    let mut found = outline::findings(subject.stack);
    for rule in book()
        .rules
        .iter()
        .filter(|rule| applies(&rule.when, &packages))
    {
        found.extend(
            check(&rule.check, &packages)
                .into_iter()
                .map(|told| finding(rule, told, &packages)),
        );
    }
    found.extend(known_bad(&packages));
    found.extend(selected(book(), &packages));
    found.extend(observed(subject));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found.dedup();
    found
}

/// Why a stack must not be published or installed, in one sentence; `None` when nothing is refused.
pub fn refusal(subject: Subject<'_>) -> Option<String> {
    let refused: Vec<String> = findings(subject)
        .iter()
        .filter(|finding| finding.level == Level::Refused)
        .map(ToString::to_string)
        .collect();
    (!refused.is_empty()).then(|| refused.join("; "))
}

fn applies(when: &When, packages: &Packages<'_>) -> bool {
    let selector = packages.subject.stack.selector.as_ref();
    let said =
        |wanted: Option<bool>, is: Option<bool>| wanted.is_none_or(|wanted| is == Some(wanted));
    let loads = |module: &String| {
        packages
            .subject
            .stack
            .modules_load
            .iter()
            .any(|loaded| same_module(loaded, module))
    };
    when.has
        .iter()
        .all(|word| !packages.component(word).is_empty())
        && (when.gpu.is_empty() || packages.gpus().iter().any(|gpu| when.gpu.contains(gpu)))
        && said(
            when.nvswitch,
            selector.and_then(|selector| selector.nvswitch),
        )
        && said(when.nvlink5, selector.and_then(|selector| selector.nvlink5))
        && when.modules.iter().all(loads)
}

fn same_module(a: &str, b: &str) -> bool {
    a.replace('-', "_") == b.replace('-', "_")
}

fn finding(rule: &Rule, told: Told, packages: &Packages<'_>) -> Finding {
    let (level, sentence, about) = match told {
        Told::Wrong(filled) => {
            let words = [
                ("{of}", &filled.of),
                ("{on}", &filled.on),
                ("{want}", &filled.want),
                ("{gpu}", &filled.gpu),
                ("{missing}", &filled.missing),
            ];
            let sentence = words
                .into_iter()
                .fold(rule.says.clone(), |text, (word, value)| {
                    text.replace(word, value)
                });
            (Level::Refused, sentence, filled.about)
        }
        // What a rule needs stands in a lock and its image, and not in a system that somebody else installed.
        Told::Unknown(lacks) if packages.strange() => (
            Level::Unknown,
            cannot_be_judged(rule, &lacks),
            String::new(),
        ),
        Told::Unknown(lacks) | Told::Absent(lacks) => (
            rule.unknown.level(packages.locked()),
            cannot_be_judged(rule, &lacks),
            String::new(),
        ),
    };
    Finding {
        rule: rule.id.clone(),
        level,
        sentence,
        source: rule.source.clone(),
        about,
    }
}

fn cannot_be_judged(rule: &Rule, lacks: &str) -> String {
    format!("{} cannot be judged: {lacks}", rule.title)
}

fn check(check: &Check, packages: &Packages<'_>) -> Vec<Told> {
    match check {
        Check::Same {
            of,
            on,
            parts,
            whole,
        } => {
            let cut = |version: &str| match whole {
                true => version.to_owned(),
                false => first(version, parts.unwrap_or(usize::MAX)),
            };
            of.iter()
                .flat_map(|of| same(packages, &packages.component(of), on, cut))
                .collect()
        }
        Check::Least { of, on, rows } => pairs(packages, of, on, |of, on| least(of, on, rows)),
        Check::Most { of, on, rows } => pairs(packages, of, on, |of, on| most(of, on, rows)),
        Check::CudaMajor { of, on, rows } => cuda_major(packages, of, on, rows),
        Check::Flavour { among, rows } => flavour(packages, among, rows),
        Check::Needs(needs) => lacking(packages, needs),
        Check::Apart { of, on } => apart(&packages.component(of), &packages.component(on)),
        Check::Like { of, on, version } => {
            like(&packages.component(of), &packages.component(on), version)
        }
        Check::Range { of, on, rows } => pairs(packages, of, on, |of, on| range(of, on, rows)),
        Check::Never(bad) => {
            let held = |component: &str, version: &str| {
                let found = packages.component(component);
                found.into_iter().find(|found| {
                    found
                        .version
                        .as_deref()
                        .is_some_and(|is| compare(is, version).is_eq())
                })
            };
            let all: Option<Vec<Present>> = bad
                .iter()
                .map(|bad| held(&bad.component, &bad.version))
                .collect();
            all.filter(|all| all.len() > 1)
                .map(|all| wrong(&all[0], &all[1], ""))
                .into_iter()
                .collect()
        }
        Check::Behind {
            of,
            on,
            series,
            rows,
        } => pairs(packages, of, on, |of, on| behind(of, on, series, rows)),
        Check::Kernel { dkms, precompiled } => kernel(packages, dkms, precompiled),
    }
}

fn wrong(of: &Present, on: &Present, want: &str) -> Told {
    let (of, on, about) = (of.to_string(), on.to_string(), of.name.clone());
    Told::Wrong(Filled {
        of,
        on,
        want: want.to_owned(),
        about,
        ..Filled::default()
    })
}

/// Each package of `of` with each of `on`; where `on` is not there, or a version is open, that is what is missing.
fn pairs(
    packages: &Packages<'_>,
    of: &str,
    on: &str,
    judge: impl Fn((&Present, &str), (&Present, &str)) -> Option<Told>,
) -> Vec<Told> {
    let (left, right) = (packages.component(of), packages.component(on));
    if right.is_empty() {
        return left
            .first()
            .map(|one| without(packages, one, on))
            .into_iter()
            .collect();
    }
    let mut told = Vec::new();
    for of in &left {
        for on in &right {
            match (&of.version, &on.version) {
                (Some(a), Some(b)) => told.extend(judge((of, a), (on, b))),
                (None, _) => told.push(Told::Unknown(of.to_string())),
                (_, None) => told.push(Told::Unknown(on.to_string())),
            }
            // Parts of one thing are held together by another rule: one sentence is enough here.
            if !told.is_empty() {
                return told;
            }
        }
    }
    told
}

/// A package whose other half is not there, as far as is known.
fn without(packages: &Packages<'_>, one: &Present, word: &str) -> Told {
    let lacks = format!("{one} is there, and no {}", spoken(word));
    if packages.is_absent(word) {
        Told::Absent(lacks)
    } else {
        Told::Unknown(lacks)
    }
}

fn spoken(component: &str) -> String {
    component.replace('_', " ")
}

fn same(
    packages: &Packages<'_>,
    of: &[Present],
    word: &str,
    cut: impl Fn(&str) -> String,
) -> Vec<Told> {
    let Some(one) = of.first() else {
        return Vec::new();
    };
    let on = packages.component(word);
    let Some(with) = on.first() else {
        return vec![without(packages, one, word)];
    };
    let Some(wanted) = with.version.as_deref() else {
        return vec![Told::Unknown(with.to_string())];
    };
    let judged = of
        .iter()
        .filter_map(|package| match package.version.as_deref() {
            None => Some(Told::Unknown(package.to_string())),
            Some(version) => (cut(version) != cut(wanted)).then(|| wrong(package, with, wanted)),
        });
    judged.collect()
}

fn least(
    (of, version): (&Present, &str),
    (on, is): (&Present, &str),
    rows: &[LeastRow],
) -> Option<Told> {
    match rows.iter().rfind(|row| compare(&row.from, version).is_le()) {
        None => Some(Told::Unknown(format!(
            "{of} is older than everything that is written down"
        ))),
        Some(row) => compare(is, &row.least)
            .is_lt()
            .then(|| wrong(of, on, &row.least)),
    }
}

/// What a branch has; `None` for one that is not written down.
fn of_branch<'r>(rows: &'r [MostRow], is: &str) -> Option<&'r str> {
    let branch = numbers(is).first().copied()?;
    rows.iter()
        .find(|row| row.branch == branch)
        .map(|row| row.most.as_str())
}

fn most(
    (of, version): (&Present, &str),
    (on, is): (&Present, &str),
    rows: &[MostRow],
) -> Option<Told> {
    let release = first(version, 2);
    let Some(most) = of_branch(rows, is) else {
        // A branch never takes back what an older one had.
        let older = rows.iter().filter(|row| {
            numbers(is)
                .first()
                .is_some_and(|branch| row.branch < *branch)
        });
        let known = older
            .max_by_key(|row| row.branch)
            .is_some_and(|row| compare(&release, &row.most).is_le());
        return (!known).then(|| Told::Unknown(format!("which CUDA {on} has is not written down")));
    };
    compare(&release, most).is_gt().then(|| wrong(of, on, most))
}

fn cuda_major(packages: &Packages<'_>, of: &str, on: &str, rows: &[MostRow]) -> Vec<Told> {
    let (of, drivers) = (packages.component(of), packages.component(on));
    let (Some(one), Some(driver)) = (of.first(), drivers.first()) else {
        return of
            .first()
            .map(|one| without(packages, one, on))
            .into_iter()
            .collect();
    };
    let Some(is) = driver.version.as_deref() else {
        return vec![Told::Unknown(driver.to_string())];
    };
    let Some(major) = of_branch(rows, is).and_then(|most| numbers(most).first().copied()) else {
        return vec![Told::Unknown(format!(
            "which CUDA {driver} has is not written down"
        ))];
    };
    let serves = |package: &Present| package.name.ends_with(&format!("cuda{major}"));
    match of.iter().any(serves) {
        true => Vec::new(),
        false => vec![wrong(one, driver, &major.to_string())],
    }
}

fn flavour(packages: &Packages<'_>, among: &[String], rows: &[FlavourRow]) -> Vec<Told> {
    let there: Vec<(&String, Present)> = among
        .iter()
        .filter_map(|word| Some((word, packages.component(word).into_iter().next()?)))
        .collect();
    let Some((_, one)) = there.first() else {
        return Vec::new();
    };
    let gpus = packages.gpus();
    if gpus.is_empty() {
        return vec![Told::Unknown(format!(
            "{one} is there, and selector.gpu does not say for which GPUs"
        ))];
    }
    let mut told = Vec::new();
    for gpu in &gpus {
        let Some(row) = rows.iter().find(|row| row.gpu.contains(gpu)) else {
            told.push(Told::Unknown(format!("nothing is written down of {gpu:?}")));
            continue;
        };
        let named: Vec<&str> = row
            .allowed
            .iter()
            .map(|word| word.trim_start_matches("module_"))
            .collect();
        let misfits = there.iter().filter(|(word, _)| !row.allowed.contains(word));
        told.extend(misfits.map(|(_, package)| {
            let want = format!("{} kernel modules", named.join(" or "));
            let about = package.name.clone();
            Told::Wrong(Filled {
                of: package.to_string(),
                want,
                gpu: gpu.replace('_', " "),
                about,
                ..Filled::default()
            })
        }));
    }
    told
}

fn lacking(packages: &Packages<'_>, needs: &Needs) -> Vec<Told> {
    let stack = packages.subject.stack;
    let components = needs
        .components
        .iter()
        .filter(|word| packages.component(word).is_empty());
    let (known, open): (Vec<&String>, Vec<&String>) =
        components.partition(|word| packages.is_absent(word));
    let components = known.into_iter().map(|word| spoken(word));
    let loads = |module: &&String| {
        !stack
            .modules_load
            .iter()
            .any(|loaded| same_module(loaded, module))
    };
    let modules = needs
        .modules
        .iter()
        .filter(loads)
        .map(|module| format!("{module} in modules_load"));
    let owns = |path: &&String| !stack.all_files().iter().any(|file| glob(path, &file.path));
    let files = needs
        .files
        .iter()
        .filter(owns)
        .map(|path| format!("the file {path}"));
    let says = |text: &&super::book::Text| !packages.file_says(&text.path, &text.text);
    let texts = needs
        .texts
        .iter()
        .filter(says)
        .map(|text| format!("`{}` in {}", text.text, text.path));
    let missing: Vec<String> = components
        .chain(modules)
        .chain(files)
        .chain(texts)
        .collect();
    let open: Vec<String> = open.into_iter().map(|word| spoken(word)).collect();
    match (missing.is_empty(), open.is_empty()) {
        (true, true) => Vec::new(),
        (true, false) => {
            vec![Told::Unknown(format!(
                "the stack brings no {}, which the node may have",
                open.join(", ")
            ))]
        }
        (false, _) => vec![Told::Wrong(Filled {
            missing: missing.join(", "),
            ..Filled::default()
        })],
    }
}

fn apart(of: &[Present], on: &[Present]) -> Vec<Told> {
    of.first()
        .zip(on.first())
        .map(|(of, on)| wrong(of, on, ""))
        .into_iter()
        .collect()
}

fn like(of: &[Present], on: &[Present], pattern: &str) -> Vec<Told> {
    let Some(with) = on.first() else {
        return Vec::new();
    };
    let judged = of
        .iter()
        .filter_map(|package| match package.version.as_deref() {
            None => Some(Told::Unknown(package.to_string())),
            Some(version) => (!glob(pattern, version)).then(|| wrong(package, with, pattern)),
        });
    judged.collect()
}

fn range(
    (of, version): (&Present, &str),
    (on, is): (&Present, &str),
    rows: &[RangeRow],
) -> Option<Told> {
    let at = |row: &&RangeRow| first(is, row.at.split('.').count()) == row.at;
    let Some(row) = rows.iter().find(at) else {
        return Some(Told::Unknown(format!("nothing is written down of {on}")));
    };
    let release = first(version.trim_start_matches('v'), 2);
    let fits = compare(&row.from, &release).is_le() && compare(&release, &row.to).is_le();
    (!fits).then(|| wrong(of, on, &format!("{} to {}", row.from, row.to)))
}

fn behind(
    (of, version): (&Present, &str),
    (on, is): (&Present, &str),
    series: &[String],
    rows: &[BehindRow],
) -> Option<Told> {
    let place = |version: &str| series.iter().position(|known| *known == first(version, 2));
    let (Some(old), Some(new)) = (place(version), place(is)) else {
        return Some(Told::Unknown(format!(
            "{of} or {on} is of a release that is not written down"
        )));
    };
    let most = rows
        .iter()
        .rfind(|row| compare(&row.from, is).is_le())
        .map_or(0, |row| row.most);
    let oldest = &series[new.saturating_sub(most)];
    (old > new || new - old > most).then(|| wrong(of, on, &format!("{oldest} to {}", series[new])))
}

fn kernel(packages: &Packages<'_>, dkms: &str, precompiled: &str) -> Vec<Told> {
    let (dkms, precompiled) = (packages.component(dkms), packages.component(precompiled));
    let Some(one) = dkms.first().or(precompiled.first()) else {
        return Vec::new();
    };
    let kernels = packages.kernels();
    if kernels.is_empty() {
        return vec![Told::Unknown(format!(
            "{one} is there, and nothing says for which kernel: the image is not known"
        ))];
    }
    let lacks = |one: &Present, want: String| {
        Told::Wrong(Filled {
            of: one.to_string(),
            want,
            about: one.name.clone(),
            ..Filled::default()
        })
    };
    let mut told = Vec::new();
    for kernel in &kernels {
        let headers = format!("linux-headers-{kernel}");
        if let Some(one) = dkms.first().filter(|_| !packages.has(&headers)) {
            // Before it is locked, a meta package may bring them.
            let meta = packages
                .names()
                .any(|name| name.starts_with("linux-headers-"))
                && !packages.locked();
            told.push(match (meta, packages.strange()) {
                (true, _) => Told::Unknown(format!(
                    "whether {headers} comes with what is named is seen when it is locked"
                )),
                (false, true) => Told::Unknown(format!(
                    "the stack brings no {headers}, which the node may have"
                )),
                (false, false) => lacks(one, headers),
            });
        }
        // What names no kernel is a metapackage: it counts where nothing else is there.
        let bare = precompiled
            .iter()
            .map(|module| (module, without_kernel(&module.name, kernel)));
        let named = bare.clone().any(|(_, bare)| bare.is_some());
        let built = |bare: &str| {
            precompiled
                .iter()
                .any(|module| module.name == format!("{bare}-{kernel}"))
        };
        let misses = bare
            .clone()
            .find(|(_, bare)| bare.map_or(!named, |bare| !built(bare)));
        told.extend(misses.map(|(one, _)| match named || packages.locked() {
            true => lacks(one, format!("build for {kernel}, the kernel that runs")),
            false => Told::Unknown(format!("{one} names no kernel")),
        }));
    }
    told
}

/// What a package of modules is called but for its kernel: `gpfs.gplbin` of `gpfs.gplbin-6.1.0-39-amd64`. `None` where it names none: not the one given,
/// and nothing else of three numbers, which the 24.04 of `generic-hwe-24.04` is not.
fn without_kernel<'n>(name: &'n str, kernel: &str) -> Option<&'n str> {
    let release = |rest: &str| {
        let numbers = rest
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .next()
            .unwrap_or_default();
        numbers
            .split('.')
            .filter(|number| !number.is_empty())
            .count()
            > 2
    };
    let other = || {
        name.match_indices('-')
            .find(|(at, _)| release(&name[at + 1..]))
            .map(|(at, _)| &name[..at])
    };
    name.strip_suffix(kernel)
        .and_then(|bare| bare.strip_suffix('-'))
        .or_else(other)
}

fn known_bad(packages: &Packages<'_>) -> Vec<Finding> {
    let stack = packages.subject.stack;
    let version = |name: &str| packages.version(name);
    let bad = stack.known_bad.iter().filter(|bad| {
        !bad.packages.is_empty()
            && bad
                .packages
                .iter()
                .all(|(name, pattern)| version(name).is_some_and(|version| glob(pattern, version)))
    });
    bad.map(|bad| {
        let named: Vec<String> = bad
            .packages
            .keys()
            .map(|name| format!("{name} {}", version(name).unwrap_or_default()))
            .collect();
        let about = bad.packages.keys().next().cloned().unwrap_or_default();
        let known = match named.as_slice() {
            [_] => "is known not to work here",
            _ => "are known not to work together",
        };
        let sentence = format!("{} {known}: {}", named.join(" and "), bad.because);
        Finding {
            rule: "known_bad".into(),
            level: Level::Refused,
            sentence,
            source: bad.source.clone(),
            about,
        }
    })
    .collect()
}

/// Whom the stack is for, against its image and the node.
fn selected(book: &Rulebook, packages: &Packages<'_>) -> Vec<Finding> {
    let Subject {
        stack,
        image,
        facts,
    } = packages.subject;
    let Some(selector) = &stack.selector else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut tell = |level, sentence: String| {
        let (rule, about) = ("selector".to_owned(), "selector".to_owned());
        found.push(Finding {
            rule,
            level,
            sentence,
            source: String::new(),
            about,
        });
    };
    if let Some(image) = image {
        let release = |wanted: &str| {
            image.os_version == wanted || image.os_version.starts_with(&format!("{wanted}."))
        };
        let misses = [
            (
                selector.os.as_deref(),
                selector.os.as_deref() == Some(image.os.as_str()),
                image.os.as_str(),
            ),
            (
                selector.os_version.as_deref(),
                selector.os_version.as_deref().is_some_and(release),
                image.os_version.as_str(),
            ),
            (
                selector.arch.as_deref(),
                selector.arch.as_deref() == Some(image.arch.as_str()),
                image.arch.as_str(),
            ),
        ];
        for (wanted, fits, is) in misses {
            if let Some(wanted) = wanted.filter(|_| !fits) {
                tell(
                    Level::Refused,
                    format!(
                        "the stack is for {wanted}, the image {:?} is {is}",
                        image.name
                    ),
                );
            }
        }
    }
    let system = [&selector.os, &selector.os_version]
        .into_iter()
        .flatten()
        .cloned()
        .collect::<Vec<_>>()
        .join(" ");
    if packages.strange() && !system.is_empty() {
        tell(
            Level::Unknown,
            format!("the stack is for {system}, and somebody else installed the node"),
        );
    }
    if let (Some(gpu), Some(facts)) = (&selector.gpu, facts) {
        let families = families(book, facts);
        if families.is_empty() {
            tell(
                Level::Refused,
                format!("the stack is for {gpu} GPUs, and the node has none"),
            );
        }
        if let Some(other) = families.iter().flatten().find(|family| *family != gpu) {
            tell(
                Level::Refused,
                format!("the stack is for {gpu} GPUs, and the node has {other}"),
            );
        }
        if families.iter().any(Option::is_none) {
            tell(
                Level::Unknown,
                format!(
                    "a GPU of the node is of a family that is not written down; the stack is for {gpu}"
                ),
            );
        }
    }
    found
}

/// Firmware and expectations, against what was observed.
fn observed(Subject { stack, facts, .. }: Subject<'_>) -> Vec<Finding> {
    let Some(facts) = facts else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut tell = |rule: &str, level, sentence: String, source: &str, about: &str| {
        let (rule, source, about) = (rule.to_owned(), source.to_owned(), about.to_owned());
        found.push(Finding {
            rule,
            level,
            sentence,
            source,
            about,
        });
    };
    let product = facts.smbios.product.as_deref().unwrap_or_default();
    // What is in the lock is held against what the BMC says, which knows more of it.
    let held = stack
        .lock
        .as_ref()
        .is_some_and(|lock| !lock.firmware.is_empty());
    let told = if held { &[] } else { stack.firmware.as_slice() };
    for item in told.iter().filter(|item| {
        item.product
            .as_deref()
            .is_none_or(|wanted| glob(wanted, product))
    }) {
        let seen = (item.component == "bios")
            .then_some(facts.smbios.bios_version.as_deref())
            .flatten();
        let (level, sentence) = match seen {
            Some(version) if version == item.version => continue,
            Some(version) => (
                Level::Note,
                format!(
                    "the {} is {version}, wanted {}",
                    item.component, item.version
                ),
            ),
            None => (
                Level::Unknown,
                format!(
                    "the {}'s firmware was not observed, wanted {}",
                    item.component, item.version
                ),
            ),
        };
        tell("firmware", level, sentence, &item.source, &item.component);
    }
    if let Some(wanted) = stack
        .expects
        .gpus
        .filter(|wanted| u32::try_from(facts.gpus.len()) != Ok(*wanted))
    {
        let sentence = format!(
            "{} GPUs are on the node's buses, the stack expects {wanted}",
            facts.gpus.len()
        );
        // A lost GPU is for inspection and the gates to judge; the stack may well be what brings it back.
        tell("expects", Level::Note, sentence, "", "gpus");
    }
    found
}

/// What a stack expects of the installed system, against what was seen there: an inventory of the live image says nothing of it.
pub fn expectations(stack: &StackSpec, facts: &Facts, source: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut tell = |level, sentence: String, about: &str| {
        let (rule, about) = ("expects".to_owned(), about.to_owned());
        found.push(Finding {
            rule,
            level,
            sentence,
            source: String::new(),
            about,
        });
    };
    let expects = &stack.expects;
    if expects.kernel.is_none() && expects.drivers.is_empty() {
        return found;
    }
    if source != "installed" {
        tell(
            Level::Unknown,
            "the installed system was not inspected since: `muster node inspect` does".to_owned(),
            "expects",
        );
        return found;
    }
    if let Some(kernel) = expects
        .kernel
        .as_ref()
        .filter(|kernel| **kernel != facts.kernel)
    {
        tell(
            Level::Note,
            format!("kernel {} runs, the stack expects {kernel}", facts.kernel),
            kernel,
        );
    }
    for driver in &expects.drivers {
        if !facts
            .pci
            .iter()
            .any(|device| device.driver.as_ref() == Some(driver))
        {
            tell(
                Level::Note,
                format!("no PCI function has the driver {driver}, which the stack expects"),
                driver,
            );
        }
    }
    found
}
