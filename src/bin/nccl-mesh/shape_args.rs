//! `--topology FILE`, or `--shape … --nodes N --rails R`: the options with which every command is told of a topology.
//! Knows nothing of what a command does with it. Runs on the command's main thread.

use clap::ValueEnum;
use mesh_routing::{AddressPlan, Problem, Shape, ShapeError, Topology, parse_speed};
use std::fmt;
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Files larger than this are no topology files.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A topology file, or a generated shape.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ShapeArgs {
    /// Topology file (TOML); `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "nodes", "rails"])]
    pub(crate) topology: Option<PathBuf>,
    /// Generated topology instead of a file [default: ring, if --nodes or --rails is given]
    #[arg(long, value_enum)]
    pub(crate) shape: Option<ShapeName>,
    /// Number of nodes of a shape [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// Links an edge of a shape [default: 1]
    #[arg(long, value_name = "R")]
    pub(crate) rails: Option<usize>,
    /// Speed of every port of a shape, such as 100G, in bits a second
    #[arg(long, value_name = "RATE", value_parser = speed, conflicts_with = "topology")]
    pub(crate) speed: Option<u32>,
}

/// The shapes, as the command line names them.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShapeName {
    /// Node k cabled to node k+1, the last to the first
    Ring,
    /// Node k cabled to node k+1
    Line,
    /// Node 0 cabled to every other
    Star,
    /// Every node cabled to every other
    Full,
    /// Rows and columns, as near to a square as can be
    Grid,
    /// Every node on one switch
    Switch,
}

impl From<ShapeName> for Shape {
    fn from(name: ShapeName) -> Self {
        match name {
            ShapeName::Ring => Self::Ring,
            ShapeName::Line => Self::Line,
            ShapeName::Star => Self::Star,
            ShapeName::Full => Self::Full,
            ShapeName::Grid => Self::Grid,
            ShapeName::Switch => Self::Switch,
        }
    }
}

/// Why there is no topology. Displays as one line a problem, each with its code.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// Nothing was asked for.
    NotGiven,
    /// The file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not sound: everything that is wrong with it.
    File {
        /// The file.
        path: PathBuf,
        /// At least one.
        problems: Vec<Problem>,
    },
    /// The shape cannot be built.
    Shape(ShapeError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGiven => f.write_str(
                "mesh[E77] no topology given; use --topology FILE, or --shape ring|line|star|full|grid|switch --nodes N",
            ),
            Self::Read { path, source } => write!(f, "mesh[E78] {}: cannot be read: {source}", path.display()),
            Self::File { path, problems } => {
                for (at, problem) in problems.iter().enumerate() {
                    let end = if at == 0 { "" } else { "\n" };
                    write!(f, "{end}{}: {problem}", path.display())?;
                }
                Ok(())
            }
            Self::Shape(error) => write!(f, "mesh[E79] {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl ShapeArgs {
    /// Whether any of the options was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.topology.is_some() || self.shape.is_some() || self.nodes.is_some() || self.rails.is_some()
    }

    /// The topology of the file, or of the shape with addresses from `base` on.
    ///
    /// # Errors
    /// When none is asked for, or it cannot be had; of a file, everything that is wrong.
    pub(crate) fn load(&self, base: Ipv4Addr) -> Result<Topology, LoadError> {
        match &self.topology {
            Some(path) => load_file(path),
            None if self.is_given() => self.generate(base),
            None => Err(LoadError::NotGiven),
        }
    }

    /// As [`load`](Self::load), but a ring of four where nothing is asked for: for commands that can make do with any
    /// fabric.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_or_ring(&self, base: Ipv4Addr) -> Result<Topology, LoadError> {
        if self.is_given() { self.load(base) } else { self.generate(base) }
    }

    /// What was asked for, in words, as a heading.
    pub(crate) fn title(&self) -> String {
        if let Some(path) = &self.topology {
            return path.display().to_string();
        }
        let shape = Shape::from(self.shape.unwrap_or(ShapeName::Ring)).name();
        let (nodes, rails) = (self.nodes.unwrap_or(4), self.rails.unwrap_or(1));
        let rails = if rails == 1 { "1 rail".to_owned() } else { format!("{rails} rails") };
        format!("{shape} of {nodes}, {rails}")
    }

    fn generate(&self, base: Ipv4Addr) -> Result<Topology, LoadError> {
        let shape = self.shape.unwrap_or(ShapeName::Ring).into();
        let (nodes, rails) = (self.nodes.unwrap_or(4), self.rails.unwrap_or(1));
        let topology = Topology::from_shape(shape, nodes, rails, &AddressPlan { base }).map_err(LoadError::Shape)?;
        Ok(self.at_speed(topology))
    }

    /// A generated topology with the speed asked for, if one was.
    pub(crate) fn at_speed(&self, topology: Topology) -> Topology {
        match self.speed {
            Some(mbps) => topology.with_speed(mbps),
            None => topology,
        }
    }
}

fn speed(text: &str) -> Result<u32, String> {
    parse_speed(text).ok_or_else(|| format!("{text:?} is no speed; write it like \"100G\" or \"2500M\", bits a second"))
}

/// The topology of a file; `-` is standard input.
///
/// # Errors
/// When it cannot be read, or everything that is wrong with it.
pub(crate) fn load_file(path: &Path) -> Result<Topology, LoadError> {
    let text = read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    Topology::from_toml(&text).map_err(|problems| LoadError::File { path: path.to_owned(), problems })
}

/// The text of a file that is not too large; `-` is standard input.
///
/// # Errors
/// When it cannot be read, or is larger than any topology file.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let source: Box<dyn io::Read> =
        if path == Path::new("-") { Box::new(io::stdin().lock()) } else { Box::new(std::fs::File::open(path)?) };
    source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB, so no topology file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{LoadError, ShapeArgs};
    use clap::Parser;
    use mesh_routing::AddressPlan;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        shape: ShapeArgs,
    }

    fn parse(words: &[&str]) -> Result<ShapeArgs, clap::Error> {
        let words = std::iter::once("test").chain(words.iter().copied());
        Command::try_parse_from(words).map(|command| command.shape)
    }

    #[test]
    fn a_shape_with_defaults() {
        let base = AddressPlan::default().base;
        let args = parse(&["--nodes", "6"]).expect("a ring");
        let topology = args.load(base).expect("a ring of six");
        assert_eq!((topology.nodes().len(), topology.links().len()), (6, 6));
        assert_eq!(args.title(), "ring of 6, 1 rail");
        let args = parse(&["--shape", "switch", "--rails", "2"]).expect("a switch");
        let topology = args.load(base).expect("a switch of four");
        assert_eq!((topology.nodes().len(), topology.links().len()), (4, 12));
    }

    #[test]
    fn a_shape_has_the_speed_asked_for() {
        let base = AddressPlan::default().base;
        let topology = parse(&["--nodes", "4", "--speed", "12G"]).expect("a speed").load(base).expect("a ring");
        assert!(topology.links().iter().all(|link| link.speed_mbps == Some(12_000)));
        assert!(parse(&["--nodes", "4", "--speed", "fast"]).is_err());
        assert!(parse(&["--topology", "a.toml", "--speed", "12G"]).is_err(), "a file says its own");
    }

    #[test]
    fn nothing_given_is_an_error_unless_any_fabric_will_do() {
        let base = AddressPlan::default().base;
        let args = parse(&[]).expect("no options");
        assert!(matches!(args.load(base), Err(LoadError::NotGiven)));
        assert_eq!(args.load_or_ring(base).expect("a ring of four").nodes().len(), 4);
    }

    #[test]
    fn file_and_shape_exclude_each_other() {
        assert!(parse(&["--topology", "a.toml", "--nodes", "4"]).is_err());
    }

    #[test]
    fn faults_say_their_code() {
        let base = AddressPlan::default().base;
        let message = |args: &ShapeArgs| args.load(base).expect_err("a fault").to_string();
        assert!(message(&parse(&["--rails", "0"]).expect("parses")).starts_with("mesh[E79] 0 rails"));
        let missing = parse(&["--topology", "/nonexistent/t.toml"]).expect("parses");
        assert!(message(&missing).starts_with("mesh[E78] /nonexistent/t.toml: cannot be read"));
    }
}
