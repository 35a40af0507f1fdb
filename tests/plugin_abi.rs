//! The built library, loaded by a C program that shares no declaration with it.
//!
//! No RDMA, CUDA or NCCL is needed; a C compiler is (`cc`).

#[path = "common/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use files::plugin_file;
use mesh_abi::*;

/// The C program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plugin_abi_load");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi/load.c");
        let done = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"])
            .args([&out, &source])
            .arg("-ldl")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        out
    })
}

/// An address of this machine that a port may have; without one there is no node, and what needs a node is skipped.
fn address() -> Option<Ipv4Addr> {
    let found = mesh_link::netdev::addresses().unwrap().into_iter().map(|found| found.address);
    found.filter(|address| !address.is_loopback()).min()
}

fn run(what: &str, env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.arg(plugin_file()).arg(what);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NCCL_")) {
        command.env_remove(name);
    }
    if let Some(address) = address() {
        // Tests run side by side, and a real agent may be running on the usual port.
        let free = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        command.env("NCCL_MESH_PORT", free.to_string());
    }
    // The interface is the same over any links, and sockets are everywhere.
    command.env("NCCL_MESH_LINK", "tcp").envs(env.iter().copied());
    command.output().unwrap()
}

/// What the program printed, if all held. `None` if this machine can be no node.
fn succeeds(what: &str, env: &[(&str, &str)]) -> Option<(String, String)> {
    if address().is_none() {
        eprintln!("skipped: this machine has no address but loopback, so it cannot be a node");
        return None;
    }
    let out = run(what, env);
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{what}: {}\n{stdout}\n{stderr}", out.status);
    Some((stdout.into_owned(), stderr.into_owned()))
}

#[test]
fn sizes_and_offsets_are_those_of_c() {
    // given the numbers that a C compiler finds for the same structures
    let out = run("layout", &[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let stdout = String::from_utf8_lossy(&out.stdout);
    let c: BTreeMap<&str, usize> = stdout
        .lines()
        .map(|line| {
            let (what, number) = line.rsplit_once(' ').unwrap();
            (what, number.parse().unwrap())
        })
        .collect();
    let mut seen = 0;
    let mut same = |what: &str, rust: usize| {
        assert_eq!(c.get(what), Some(&rust), "{what}");
        seen += 1;
    };
    // then ours are the same, for every field
    macro_rules! fields {
        ($c:literal, $rust:ty, { $($cf:literal: $rf:ident),* $(,)? }) => {
            same($c, size_of::<$rust>());
            $(same(concat!($c, ".", $cf), offset_of!($rust, $rf));)*
        };
    }
    macro_rules! common {
        ($c:literal, $rust:ty, { $($cf:literal: $rf:ident),* $(,)? }) => {
            fields!($c, $rust, {
                "name": name, "pciPath": pci_path, "guid": guid, "ptrSupport": ptr_support, "speed": speed, "port": port,
                "latency": latency, "maxComms": max_comms, "maxRecvs": max_recvs, $($cf: $rf,)*
            });
        };
    }
    macro_rules! late {
        ($c:literal, $rust:ty, { $($cf:literal: $rf:ident),* $(,)? }) => {
            common!($c, $rust, {
                "netDeviceType": net_device_type, "netDeviceVersion": net_device_version, "regIsGlobal": reg_is_global,
                "forceFlush": force_flush, "vProps": vprops, "maxP2pBytes": max_p2p_bytes,
                "maxCollBytes": max_coll_bytes, $($cf: $rf,)*
            });
        };
    }
    common!("props6_t", PropertiesV6, {});
    common!("props7_t", PropertiesV7, {
        "netDeviceType": net_device_type, "netDeviceVersion": net_device_version,
    });
    common!("props8_t", PropertiesV8, {
        "netDeviceType": net_device_type, "netDeviceVersion": net_device_version, "regIsGlobal": reg_is_global,
    });
    late!("props9_t", PropertiesV9, {});
    late!("props11_t", PropertiesV11, { "maxMultiRequestSize": max_multi_request_size });
    late!("props12_t", PropertiesV12, {
        "maxMultiRequestSize": max_multi_request_size, "railId": rail_id, "planeId": plane_id,
    });
    fields!("config_t", CommConfig, {});
    fields!("device_handle_t", NetDeviceHandle, { "size": size, "needsProxyProgress": needs_proxy_progress });
    fields!("attr_t", NetAttr, { "recv": recv_comm_attr, "op": op, "proto": proto });
    fields!("vprops4_t", VDeviceProps4, {});
    fields!("vprops8_t", VDeviceProps8, {});
    fields!("net12_t", NetV12, {
        "regMrDmaBuf": reg_mr_dma_buf, "irecv": irecv, "closeListen": close_listen, "makeVDevice": make_vdevice,
        "finalize": finalize, "setNetAttr": set_net_attr,
    });
    assert_eq!(seen, c.len(), "numbers that nobody compared");
}

#[test]
fn a_c_program_finds_every_version_complete() {
    let Some((stdout, _)) = succeeds("load", &[]) else { return };
    let versions: Vec<&str> = stdout.lines().filter(|line| line.ends_with(" ok")).collect();
    assert_eq!(versions.len(), 7, "{stdout}");
}

#[test]
fn init_finalize_and_dlclose_can_be_repeated() {
    let Some((stdout, _)) = succeeds("cycle", &[]) else { return };
    assert!(stdout.contains("cycled"), "{stdout}");
}

#[test]
fn null_and_wrong_arguments_are_refused() {
    let Some((stdout, _)) = succeeds("misuse", &[]) else { return };
    assert!(stdout.contains("survived"), "{stdout}");
}

#[test]
fn a_start_that_fails_names_the_reason_and_leaves_nothing() {
    // given a topology file that is not there
    let out = run("refused", &[("NCCL_MESH_TOPOLOGY", "/nonexistent/mesh.toml")]);
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // then NCCL sees an error and no device, and the user the file's name and a code
    assert!(out.status.success() && stdout.contains("refused"), "{}\n{stdout}\n{stderr}", out.status);
    assert!(stderr.contains("/nonexistent/mesh.toml") && stderr.contains("mesh[E"), "{stderr}");
}

#[test]
fn children_of_fork_are_turned_away_once() {
    let Some((stdout, stderr)) = succeeds("fork", &[]) else { return };
    assert!(stdout.contains("forked"), "{stdout}");
    assert_eq!(stderr.matches("mesh[E90]").count(), 1, "{stderr}");
}

#[test]
fn the_banner_names_the_file_and_settings_are_warned_about_once() {
    // given wishes for the log, a misspelt setting, and one of another transport
    let env = [
        ("NCCL_MESH_DEBUG", "1"),
        ("NCCL_MESH_CHUNK_KB", "many"),
        ("NCCL_MESH_TOPOLOGI", "x"),
        ("NCCL_IB_HCA", "mlx5_0"),
    ];
    // when initialised many times without a logger
    let Some((_, stderr)) = succeeds("cycle", &env) else { return };
    // then each is said once, on standard error
    let once = |text: &str| assert_eq!(stderr.matches(text).count(), 1, "{text}:\n{stderr}");
    once("mesh[I01] nccl-mesh ");
    once("libnccl_net_mesh.so abi v12");
    once("mesh[W91] NCCL_MESH_CHUNK_KB");
    once("did you mean NCCL_MESH_TOPOLOGY?");
    once("mesh[W94] NCCL_IB_HCA");
    // and without the wish there is no banner
    let Some((_, stderr)) = succeeds("cycle", &[]) else { return };
    assert!(!stderr.contains("mesh[I01]"), "{stderr}");
}

#[test]
fn the_library_needs_no_rdma_and_no_cuda() {
    // given the file's dynamic section
    let Ok(out) = Command::new("readelf").arg("-d").arg(plugin_file()).output() else {
        eprintln!("skipped: readelf is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split('[').nth(1)?.split(']').next())
        .collect();
    // then it needs the C library's files only, and stays mapped after dlclose
    assert!(!needed.is_empty(), "{text}");
    for name in &needed {
        let known = ["libc.so.", "libm.so.", "libgcc_s.so.", "ld-linux"].iter().any(|start| name.starts_with(start));
        assert!(known, "{name} in {needed:?}");
    }
    assert!(text.contains("NODELETE"), "{text}");
}
