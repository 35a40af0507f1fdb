//! Runs of `nccl-mesh sim run --link verbs` with something wrong, and the small libraries that go with them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::common::{Ran, nccl_mesh_with, plugin_file};
use crate::nodes;

/// A run that takes so long hangs.
const LIMIT: Duration = Duration::from_secs(90);

/// The folder with soft verbs' libibverbs, built once a test program.
fn soft_verbs() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("soft-verbs");
        mesh_soft_verbs::artefact::build(&folder).expect("soft verbs");
        folder
    })
}

/// A folder of these tests.
fn scratch() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bad-verbs");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A shared library of a C file beside this one.
pub(crate) fn library(source: &str, name: &str, further: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs").join(source);
    let library = scratch().join(name);
    std::fs::create_dir_all(library.parent().unwrap()).expect("a folder");
    // Another run may have the old one loaded: it keeps it.
    let draft = library.with_extension(std::process::id().to_string());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1"])
        .args(further)
        .arg("-o")
        .arg(&draft)
        .arg(source)
        .output();
    let compiled = compiled.expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    std::fs::rename(&draft, &library).expect("renamed");
    library
}

/// The library that makes interfaces of addresses.
pub(crate) fn preload() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| library("interfaces.c", "interfaces.so", &[]))
}

/// The text of a topology file of node0 and node1 with these addresses.
pub(crate) fn topology(first: &[&str], second: &[&str]) -> String {
    let mut text = "schema = 1\n".to_owned();
    for (name, addresses) in [("node0", first), ("node1", second)] {
        text += &format!("\n[[node]]\nname = \"{name}\"\n");
        for (number, address) in addresses.iter().enumerate() {
            text += &format!("[[node.port]]\ndevice = \"eth{number}\"\naddress = \"{address}\"\n");
        }
    }
    text
}

/// A file that goes with its value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let path = scratch().join(format!("{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        Self(path)
    }
}

impl fmt::Display for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A run being put together.
pub(crate) struct Run {
    arguments: Vec<String>,
    verbs: Option<PathBuf>,
    program: Option<String>,
    env: Vec<(String, String)>,
}

impl Run {
    pub(crate) fn new(words: &str) -> Self {
        let arguments = words.split_whitespace().map(str::to_owned).collect();
        Self { arguments, verbs: None, program: None, env: Vec::new() }
    }

    fn option(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// A statement for the fabric file, `NAME=VALUE`.
    pub(crate) fn fault(self, statement: &str) -> Self {
        self.option("--soft-verbs-set", statement)
    }

    /// A variable of every node.
    pub(crate) fn env(self, variable: &str) -> Self {
        self.option("--env", variable)
    }

    pub(crate) fn envs(self, variables: &[&str]) -> Self {
        variables.iter().fold(self, |run, variable| run.env(variable))
    }

    /// Variables of the command itself.
    pub(crate) fn with(mut self, variables: &[(&str, &str)]) -> Self {
        self.env.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Another folder with a libibverbs.
    pub(crate) fn verbs(mut self, folder: &Path) -> Self {
        self.verbs = Some(folder.to_owned());
        self
    }

    /// Every node does what [`nodes`] has by this name.
    pub(crate) fn program(mut self, what: &str) -> Self {
        self.program = Some(what.to_owned());
        self.env(&format!("{}={what}", nodes::WHAT))
    }

    pub(crate) fn run(self) -> Told {
        let verbs = self.verbs.clone().unwrap_or_else(|| soft_verbs().clone());
        let mut words: Vec<String> = ["sim", "run", "--link", "verbs", "--soft-verbs"].map(str::to_owned).into();
        words.extend([verbs.display().to_string(), "--plugin".into(), plugin_file().display().to_string()]);
        words.extend(self.arguments);
        if self.program.is_some() {
            let program = std::env::current_exe().unwrap().display().to_string();
            words.extend(["--".to_owned(), program]);
            words
                .extend(["--exact", nodes::NAME, "--ignored", "--nocapture", "--test-threads", "1"].map(str::to_owned));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let env: Vec<(&str, &str)> = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Told(nccl_mesh_with(&words, &env, LIMIT).leaves_nothing())
    }
}

/// How a run ended and what it said.
pub(crate) struct Told(Ran);

impl Told {
    pub(crate) fn told(&self) -> String {
        self.0.told()
    }

    pub(crate) fn status(&self) -> Option<i32> {
        self.0.status
    }

    pub(crate) fn lines(&self, text: &str) -> Vec<&str> {
        self.0.lines_with(text)
    }

    /// The only line with this text and all the words. Panics if there is none, or several.
    #[track_caller]
    pub(crate) fn line(&self, text: &str, words: &[&str]) -> String {
        assert!(!self.0.stderr.contains("internal error"), "{}", self.told());
        let fits = |line: &&&str| words.iter().all(|word| line.contains(word));
        let lines = self.lines(text);
        let found: Vec<_> = lines.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "lines with {text} and {words:?}: {}", self.told());
        (*found[0]).to_owned()
    }

    /// Panics unless the run failed with one line of this code by this node that has all the words; returns the line.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str, node: &str, words: &[&str]) -> String {
        assert!(self.status().is_some_and(|status| status != 0), "{}", self.told());
        self.line(&format!("mesh[{code}] node {node}: "), words)
    }

    /// The same for a fault of all nodes, each of which says it once, unless the first that fails ends the run before.
    #[track_caller]
    pub(crate) fn refused_by_any(&self, code: &str, words: &[&str]) -> String {
        assert!(self.status().is_some_and(|status| status != 0), "{}", self.told());
        let lines = self.lines(&format!("mesh[{code}]"));
        let sound = lines.iter().all(|line| words.iter().all(|word| line.contains(word)));
        assert!((1..=2).contains(&lines.len()) && sound, "lines with {code} and {words:?}: {}", self.told());
        lines[0].to_owned()
    }

    /// Panics unless every node came to its end.
    #[track_caller]
    pub(crate) fn passed(self) -> Self {
        assert_eq!(self.status(), Some(0), "{}", self.told());
        // A filter that names no test passes as well.
        assert_eq!(self.lines(nodes::DONE).len(), 2, "{}", self.told());
        self
    }
}
