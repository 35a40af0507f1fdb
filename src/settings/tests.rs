//! Settings from environments and files, right and wrong.

use std::path::Path;
use std::time::Duration;

use super::*;

fn env(pairs: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>().into_iter()
}

#[test]
fn defaults_are_those_of_the_table() {
    // given nothing
    let (settings, warnings) = Settings::load(env(&[]), None);
    // then every default of the table parses and is in its field
    assert_eq!(warnings, []);
    assert_eq!(settings, Settings::default());
    for setting in table() {
        assert!(setting.default.is_empty() || setting.kind.parse(setting.default).is_some(), "{}", setting.name);
        assert!(!setting.doc.is_empty() && !setting.used_in.is_empty(), "{}", setting.name);
    }
    assert_eq!(settings.port, 17917);
    assert_eq!(settings.chunk, 128 << 10);
    assert_eq!(settings.relay_memory, 64 << 20);
    assert_eq!((settings.relay_slots, settings.trunk_slots, settings.lanes), (None, None, 8));
    assert_eq!(settings.socket_buffer, None);
    assert_eq!(settings.connect_timeout, Duration::from_secs(60));
    assert_eq!(settings.accept_timeout, Duration::from_secs(120));
    assert_eq!(settings.timeout, Duration::from_secs(30));
    assert_eq!(settings.drain, Duration::from_secs(5));
    assert!(settings.fatal_on_timeout && settings.metrics && !settings.disable_rdma);
    assert_eq!(settings.relay_cores, RelayCores::Auto);
    assert_eq!((settings.gid_index, settings.speed_mbps, settings.debug), (None, None, 0));
    assert_eq!((settings.traffic_class, settings.service_level), (None, 0));
}

#[test]
fn names_are_unique_and_upper_case() {
    let mut names: Vec<_> = table().iter().map(|setting| setting.name).collect();
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_')));
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn the_environment_wins_over_the_file_and_empty_is_unset() {
    // given both, and an empty variable
    let conf = "port = 4000\nchunk_kb = \"64\"\nrelay_cores = [3, 5]\nmetrics = false\nnode = \"\"\n";
    let vars = [("NCCL_MESH_PORT", "5000"), ("NCCL_MESH_CHUNK_KB", " "), ("PATH", "/bin"), ("NCCL_MESH_SPIN_US", "7")];
    // when loaded
    let (settings, warnings) = Settings::load(env(&vars), Some(conf));
    // then each value has its place and its origin
    assert_eq!(warnings, []);
    assert_eq!(settings.port, 5000);
    assert_eq!(settings.chunk, 64 << 10);
    assert_eq!(settings.relay_cores, RelayCores::List(vec![3, 5]));
    assert_eq!(settings.node, None);
    assert!(!settings.metrics);
    assert_eq!(settings.spin_on(64), Duration::from_micros(7));
    let listed = settings.listed();
    assert_eq!(listed.len(), table().len());
    let of = |name: &str| listed.iter().find(|row| row.name == name).map(|row| (row.value.as_str(), row.origin));
    assert_eq!(of("NCCL_MESH_PORT"), Some(("5000", Origin::Environment)));
    assert_eq!(of("NCCL_MESH_CHUNK_KB"), Some(("64", Origin::File)));
    assert_eq!(of("NCCL_MESH_TRUNK_SLOTS"), Some(("auto", Origin::Default)));
}

#[test]
fn limits_hold_on_both_sides() {
    // given the values at and beyond each end of every range
    for setting in table() {
        let (Kind::Number { min, max } | Kind::NumberOrAuto { min, max }) = setting.kind else { continue };
        let name = setting.full_name();
        let tried = |value: String| Settings::load(env(&[(&name, &value)]), None).1;
        // then the ends are taken and what lies beyond is refused
        assert_eq!(tried(min.to_string()), [], "{name}");
        assert_eq!(tried(max.to_string()), [], "{name}");
        assert_eq!(tried((max + 1).to_string()).len(), 1, "{name}");
        assert_eq!(tried((i128::from(min) - 1).to_string()).len(), 1, "{name}");
    }
}

#[test]
fn wrong_values_keep_the_default_and_say_what_is_expected() {
    let vars = [
        ("NCCL_MESH_PORT", "http"),
        ("NCCL_MESH_METRICS", "maybe"),
        ("NCCL_MESH_RELAY_CORES", "1,,2"),
        ("NCCL_MESH_SPIN_US", "-1"),
    ];
    let (settings, warnings) = Settings::load(env(&vars), None);
    assert_eq!(settings, Settings::default());
    assert_eq!(warnings.len(), vars.len());
    let text = warnings.iter().map(ToString::to_string).find(|text| text.contains("NCCL_MESH_PORT")).unwrap();
    assert!(text.starts_with("mesh[W91]") && text.contains("\"http\"") && text.contains("1 to 65535"), "{text}");
    assert!(text.contains("17917"), "{text}");
}

#[test]
fn a_wrong_value_in_the_environment_leaves_that_of_the_file() {
    let (settings, warnings) = Settings::load(env(&[("NCCL_MESH_PORT", "x")]), Some("port = 4000"));
    assert_eq!((settings.port, warnings.len()), (4000, 1));
}

#[test]
fn unknown_names_are_said_with_the_nearest() {
    // given a slip of the pen in both places, and something far from all names
    let vars = [("NCCL_MESH_TOPOLGY", "x"), ("NCCL_MESH_QQQQQQQQQQ", "1")];
    let (settings, warnings) =
        Settings::load(env(&vars), Some("relay_slot = 3\nPORT = 1\nconf = \"x\"\nNCCL_MESH_NODE = \"a\""));
    assert_eq!(settings, Settings::default());
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let has = |parts: [&str; 2]| texts.iter().any(|text| parts.iter().all(|part| text.contains(part)));
    assert_eq!(texts.len(), 6, "{texts:?}");
    assert!(has(["NCCL_MESH_TOPOLGY", "did you mean NCCL_MESH_TOPOLOGY?"]), "{texts:?}");
    assert!(has(["relay_slot ", "did you mean relay_slots?"]), "{texts:?}");
    assert!(has(["no setting PORT (settings file)", "did you mean port?"]), "{texts:?}");
    assert!(has(["NCCL_MESH_QQQQQQQQQQ", "env --all"]), "{texts:?}");
    assert!(has(["no setting NCCL_MESH_NODE (settings file)", "did you mean node?"]), "{texts:?}");
    assert!(has(["no setting conf (settings file)", ""]), "{texts:?}");
}

#[test]
fn names_without_effect_are_said_once() {
    // given one in both places, and variables of another transport
    let vars =
        [("NCCL_MESH_CONN_POOL", "0"), ("NCCL_IB_HCA", "mlx5_0"), ("NCCL_IB_GID_INDEX", "3"), ("NCCL_IB_TC", "")];
    let (settings, warnings) = Settings::load(env(&vars), Some("conn_pool = 1"));
    assert_eq!(settings.port, 17917);
    let names = vec!["NCCL_IB_GID_INDEX".to_owned(), "NCCL_IB_HCA".to_owned()];
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(matches!(&warnings[0], Warning::Idle { name, .. } if name == "NCCL_MESH_CONN_POOL"), "{warnings:?}");
    assert_eq!(warnings[1], Warning::OtherTransport { names });
}

#[test]
fn a_broken_file_is_one_warning_with_the_line() {
    let (settings, warnings) = Settings::load(env(&[]), Some("port = 1\nchunk_kb = = 3\n"));
    assert_eq!(settings, Settings::default());
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.to_string().contains("line 2"), "{warning}");
}

#[test]
fn automatic_spinning_depends_on_the_cores() {
    let settings = Settings::default();
    assert_eq!(settings.spin_on(2), Duration::ZERO);
    assert_eq!(settings.spin_on(3), Duration::from_micros(50));
}

#[test]
fn the_document_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    if std::env::var_os("MESH_WRITE_DOCS").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == document(), "docs/settings.md is stale: run this test once with MESH_WRITE_DOCS=1");
}
