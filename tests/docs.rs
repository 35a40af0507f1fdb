//! The documents agree with the code: every code that can be printed is explained, and no other; every setting and command that is named exists;
//! every link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use nccl_net_mesh::settings;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files of the project with this ending, with their texts. Folders of tools, and what is built, are left out.
fn files(ending: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if !name.starts_with('.') && !["target", "gpu-bin", "gpu-results", "node_modules"].contains(&&*name) {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// `E12` at the start of the text, with nothing of a word after it.
fn code_at(text: &str) -> Option<&str> {
    let code = text.get(..3)?;
    let mut chars = code.chars();
    let fits = matches!(chars.next()?, 'E' | 'W' | 'I') && chars.all(|c| c.is_ascii_digit());
    let ends = !text[3..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (fits && ends).then_some(code)
}

/// Codes that follow a given text.
fn codes_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = String> + 'a {
    text.match_indices(before).filter_map(|(at, _)| code_at(&text[at + before.len()..])).map(str::to_owned)
}

/// Source as it runs: without tests in it, and without comments.
fn running(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_string_lossy();
    let in_tests = path.components().any(|part| part == Component::Normal("tests".as_ref()));
    in_tests || name == "tests" || name.ends_with("_tests")
}

/// Codes that a piece of source names: in texts, as a literal of its own, or as a number with a name in `relay/src/code.rs`.
fn codes_of_source(path: &Path, text: &str) -> BTreeSet<String> {
    let mut codes: BTreeSet<String> = codes_after(text, "mesh[").collect();
    if !is_test(path) {
        codes.extend(codes_after(text, "\"").filter(|code| text.contains(&format!("\"{code}\""))));
    }
    if path == Path::new("relay/src/code.rs") {
        let numbers = text.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": u16 = "));
        codes
            .extend(numbers.map(|(_, number)| format!("E{:02}", number.trim_end_matches(';').parse::<u16>().unwrap())));
    }
    codes
}

/// Codes with a row in `docs/errors.md`: lines that begin with `| E12 |`.
fn explained() -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in document("docs/errors.md").lines() {
        let Some(code) = line.strip_prefix("| ").and_then(code_at) else { continue };
        let cells: Vec<String> = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        assert!(rows.insert(code.to_owned(), cells).is_none(), "{code} has two rows");
    }
    rows
}

#[test]
fn every_code_in_the_source_is_explained() {
    // given the rows of docs/errors.md
    let explained = explained();
    // when all sources are read, tests and comments too
    let sources = files(".rs");
    let named = sources.iter().filter(|(path, _)| path != Path::new("tests/docs.rs"));
    let missing: Vec<_> = named
        .flat_map(|(path, text)| codes_of_source(path, text).into_iter().map(move |code| (code, path)))
        .filter(|(code, _)| !explained.contains_key(code))
        .collect();
    // then each code in them has a row
    assert!(missing.is_empty(), "without a row in docs/errors.md: {missing:?}");
}

#[test]
fn every_code_that_is_explained_can_be_printed() {
    let sources = files(".rs");
    let printed: BTreeSet<String> = sources
        .iter()
        .filter(|(path, _)| !is_test(path))
        .flat_map(|(path, text)| codes_of_source(path, &running(text)))
        .collect();
    let gone: Vec<_> = explained().into_keys().filter(|code| !printed.contains(code)).collect();
    assert!(gone.is_empty(), "in docs/errors.md, but no source has them: {gone:?}");
    assert!(printed.len() > 50, "the search finds too few: {printed:?}");
}

#[test]
fn every_row_says_what_why_and_what_to_do() {
    for (code, cells) in explained() {
        assert_eq!(cells.len(), 4, "{code}: code, text, cause, remedy: {cells:?}");
        assert!(cells.iter().all(|cell| cell.len() >= 3), "{code}: {cells:?}");
    }
}

#[test]
fn documents_name_only_codes_that_exist() {
    let explained = explained();
    for (path, text) in files(".md") {
        for code in codes_after(&text, "mesh[") {
            assert!(explained.contains_key(&code), "{}: mesh[{code}]", path.display());
        }
    }
}

#[test]
fn documents_name_only_settings_that_exist() {
    let known: BTreeSet<_> = settings::table().iter().map(|setting| setting.name).collect();
    let mut seen = 0;
    for (path, text) in files(".md") {
        for (at, _) in text.match_indices(settings::PREFIX) {
            let rest = &text[at + settings::PREFIX.len()..];
            let end = rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            // The prefix alone stands for all of them.
            if !name.is_empty() {
                assert!(known.contains(name), "{}: {}{name}", path.display(), settings::PREFIX);
                seen += 1;
            }
        }
    }
    assert!(seen > known.len(), "the search finds too few: {seen}");
}

/// Targets of the links of a document, with code left out.
fn links(text: &str) -> Vec<&str> {
    let mut code = false;
    let mut targets = Vec::new();
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code {
            continue;
        }
        // Every second piece is between backticks. The rest has the ends of links, even of those whose text is code.
        for piece in line.split('`').step_by(2) {
            let starts = piece.match_indices("](").map(|(at, _)| &piece[at + 2..]);
            targets.extend(starts.filter_map(|rest| rest.split(')').next()));
        }
    }
    targets
}

/// The names that headings get as targets.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .collect::<String>();
            kept.replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut seen = 0;
    for (path, text) in files(".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for target in
            links(&text).into_iter().filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            assert!(there.exists(), "{}: link to {target}", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&there).unwrap();
                assert!(anchors(&text).contains(anchor), "{}: link to {target}", path.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "the search finds too few: {seen}");
}

#[test]
fn the_search_for_codes_sees_what_it_should() {
    // What is no code of ours.
    for text in ["E1", "E1x", "E123", "e12", "X12", "E12_", "", "€12"] {
        assert_eq!(code_at(text), None, "{text:?}");
    }
    assert_eq!(code_at("E12] more"), Some("E12"));
    let source = "a(\"E12\", \"mesh[W34] x\") // mesh[I56]\n// mesh[E99]\n#[cfg(test)]\nmod tests { \"E77\" }";
    let codes = |text: &str| codes_of_source(Path::new("src/x.rs"), text).into_iter().collect::<Vec<_>>();
    assert_eq!(codes(source), ["E12", "E77", "E99", "I56", "W34"]);
    assert_eq!(codes(&running(source)), ["E12", "I56", "W34"]);
    assert_eq!(links("[a](b#c) `[d](e)`\n```\n[f](g)\n```\n[`h`](i)"), ["b#c", "i"]);
    assert_eq!(anchors("# One, two-three\n## `x` y\n"), ["one-two-three".to_owned(), "x-y".to_owned()].into());
}

/// The operator's command as built for this test.
#[cfg(feature = "cli")]
mod commands {
    use super::*;
    use std::process::Command;

    /// Subcommands, from the help of a command.
    fn subcommands(of: &[&str]) -> Vec<String> {
        let out = Command::new(env!("CARGO_BIN_EXE_nccl-mesh")).args(of).arg("--help").output().unwrap();
        assert!(out.status.success(), "{of:?} --help");
        let help = String::from_utf8(out.stdout).unwrap();
        let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
        let lines = list.lines().take_while(|line| line.starts_with("  "));
        let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    }

    /// All commands that do something: `routes`, `sim run`.
    fn all() -> Vec<String> {
        let mut all = Vec::new();
        for command in subcommands(&[]) {
            let below = subcommands(&[&command]);
            if below.is_empty() {
                all.push(command);
            } else {
                all.extend(below.iter().map(|name| format!("{command} {name}")));
            }
        }
        all
    }

    #[test]
    fn the_readme_names_every_command() {
        let readme = document("README.md");
        let commands = all();
        assert!(commands.len() >= 5, "{commands:?}");
        for command in commands {
            assert!(readme.contains(&format!("nccl-mesh {command}")), "README.md does not name nccl-mesh {command}");
        }
    }

    #[test]
    fn documents_name_only_commands_that_exist() {
        let first: BTreeSet<_> = subcommands(&[]).into_iter().collect();
        for (path, text) in files(".md") {
            // In running text the name is followed by any word; as a command it stands in code or behind a path.
            for before in ["`nccl-mesh ", "/nccl-mesh "] {
                for (at, _) in text.match_indices(before) {
                    let rest = &text[at + before.len()..];
                    let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                    let known = first.contains(&word) || word.starts_with("--") || word.is_empty();
                    assert!(known, "{}: nccl-mesh {word}", path.display());
                }
            }
        }
    }
}
