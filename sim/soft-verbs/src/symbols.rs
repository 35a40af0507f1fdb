//! Names that the shared library exports, each with the version at which programs ask for it.
//!
//! From these tables come the linker's version script, the C file of functions that only refuse, and the tests. Pure.

use std::fmt::Write as _;

/// Functions served in Rust: name and version.
pub const SERVED: &[(&str, &str)] = &[
    ("ibv_get_device_list", "IBVERBS_1.1"),
    ("ibv_free_device_list", "IBVERBS_1.1"),
    ("ibv_get_device_name", "IBVERBS_1.1"),
    ("ibv_get_device_guid", "IBVERBS_1.1"),
    ("ibv_get_device_index", "IBVERBS_1.9"),
    ("ibv_open_device", "IBVERBS_1.1"),
    ("ibv_close_device", "IBVERBS_1.1"),
    ("ibv_get_async_event", "IBVERBS_1.1"),
    ("ibv_ack_async_event", "IBVERBS_1.1"),
    ("ibv_query_device", "IBVERBS_1.1"),
    ("ibv_query_port", "IBVERBS_1.1"),
    ("ibv_query_port_speed", "IBVERBS_1.16"),
    ("ibv_query_gid", "IBVERBS_1.1"),
    ("_ibv_query_gid_ex", "IBVERBS_1.11"),
    ("_ibv_query_gid_table", "IBVERBS_1.11"),
    ("ibv_query_pkey", "IBVERBS_1.1"),
    ("ibv_get_pkey_index", "IBVERBS_1.5"),
    ("ibv_alloc_pd", "IBVERBS_1.1"),
    ("ibv_dealloc_pd", "IBVERBS_1.1"),
    ("ibv_reg_mr", "IBVERBS_1.1"),
    ("ibv_reg_mr_iova", "IBVERBS_1.7"),
    ("ibv_reg_mr_iova2", "IBVERBS_1.8"),
    ("ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
    ("ibv_dereg_mr", "IBVERBS_1.1"),
    ("ibv_create_comp_channel", "IBVERBS_1.0"),
    ("ibv_destroy_comp_channel", "IBVERBS_1.0"),
    ("ibv_create_cq", "IBVERBS_1.1"),
    ("ibv_destroy_cq", "IBVERBS_1.1"),
    ("ibv_get_cq_event", "IBVERBS_1.1"),
    ("ibv_ack_cq_events", "IBVERBS_1.1"),
    ("ibv_create_qp", "IBVERBS_1.1"),
    ("ibv_modify_qp", "IBVERBS_1.1"),
    ("ibv_query_qp", "IBVERBS_1.1"),
    ("ibv_destroy_qp", "IBVERBS_1.1"),
    ("ibv_qp_to_qp_ex", "IBVERBS_1.6"),
    ("ibv_query_ece", "IBVERBS_1.10"),
    ("ibv_set_ece", "IBVERBS_1.10"),
    ("ibv_query_qp_data_in_order", "IBVERBS_1.14"),
    ("ibv_resolve_eth_l2_from_gid", "IBVERBS_1.1"),
    ("ibv_fork_init", "IBVERBS_1.1"),
    ("ibv_is_fork_initialized", "IBVERBS_1.13"),
    ("ibv_dontfork_range", "IBVERBS_1.1"),
    ("ibv_dofork_range", "IBVERBS_1.1"),
    ("ibv_wc_status_str", "IBVERBS_1.1"),
    ("ibv_event_type_str", "IBVERBS_1.1"),
    ("ibv_node_type_str", "IBVERBS_1.1"),
    ("ibv_port_state_str", "IBVERBS_1.1"),
    ("ibv_rate_to_mult", "IBVERBS_1.0"),
    ("mult_to_ibv_rate", "IBVERBS_1.0"),
    ("ibv_rate_to_mbps", "IBVERBS_1.1"),
    ("mbps_to_ibv_rate", "IBVERBS_1.1"),
    ("ibv_read_sysfs_file", "IBVERBS_1.0"),
    ("ibv_get_sysfs_path", "IBVERBS_1.0"),
];

/// What a function that only refuses returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The errno value.
    Code,
    /// A null pointer, with `errno` set.
    Null,
    /// Nothing; for functions that only tell or change something.
    Nothing,
}

/// Public functions that only refuse: shared receive queues, datagrams, multicast, imports, resizing.
pub const REFUSED: &[(&str, &str, Refusal)] = &[
    ("ibv_create_ah", "IBVERBS_1.1", Refusal::Null),
    ("ibv_create_ah_from_wc", "IBVERBS_1.1", Refusal::Null),
    ("ibv_init_ah_from_wc", "IBVERBS_1.1", Refusal::Code),
    ("ibv_destroy_ah", "IBVERBS_1.1", Refusal::Code),
    ("ibv_attach_mcast", "IBVERBS_1.1", Refusal::Code),
    ("ibv_detach_mcast", "IBVERBS_1.1", Refusal::Code),
    ("ibv_create_srq", "IBVERBS_1.1", Refusal::Null),
    ("ibv_modify_srq", "IBVERBS_1.1", Refusal::Code),
    ("ibv_query_srq", "IBVERBS_1.1", Refusal::Code),
    ("ibv_destroy_srq", "IBVERBS_1.1", Refusal::Code),
    ("ibv_resize_cq", "IBVERBS_1.1", Refusal::Code),
    ("ibv_rereg_mr", "IBVERBS_1.1", Refusal::Code),
    ("ibv_register_driver", "IBVERBS_1.1", Refusal::Nothing),
    ("ibv_copy_ah_attr_from_kern", "IBVERBS_1.1", Refusal::Nothing),
    ("ibv_copy_path_rec_from_kern", "IBVERBS_1.0", Refusal::Nothing),
    ("ibv_copy_path_rec_to_kern", "IBVERBS_1.0", Refusal::Nothing),
    ("ibv_copy_qp_attr_from_kern", "IBVERBS_1.0", Refusal::Nothing),
    ("ibv_import_device", "IBVERBS_1.10", Refusal::Null),
    ("ibv_import_mr", "IBVERBS_1.10", Refusal::Null),
    ("ibv_unimport_mr", "IBVERBS_1.10", Refusal::Nothing),
    ("ibv_import_pd", "IBVERBS_1.10", Refusal::Null),
    ("ibv_unimport_pd", "IBVERBS_1.10", Refusal::Nothing),
    ("ibv_import_dm", "IBVERBS_1.13", Refusal::Null),
    ("ibv_unimport_dm", "IBVERBS_1.13", Refusal::Nothing),
    ("ibv_dm_export_dmabuf_fd", "IBVERBS_1.15", Refusal::Code),
];

/// Versions in the order in which each builds on the one before.
pub const VERSIONS: &[&str] = &[
    "IBVERBS_1.0",
    "IBVERBS_1.1",
    "IBVERBS_1.5",
    "IBVERBS_1.6",
    "IBVERBS_1.7",
    "IBVERBS_1.8",
    "IBVERBS_1.9",
    "IBVERBS_1.10",
    "IBVERBS_1.11",
    "IBVERBS_1.12",
    "IBVERBS_1.13",
    "IBVERBS_1.14",
    "IBVERBS_1.15",
    "IBVERBS_1.16",
];

/// Private versions of rdma-core releases: 39 to 50, 58, 60 to 62, 64. A vendor library of that release binds to one of them
/// when it is loaded, whether it is used or not.
pub const PRIVATE_VERSIONS: &[u32] = &[34, 57, 59, 64];

/// Names between libibverbs and vendor libraries; all refuse, but for `ibv_query_gid_type`.
pub const PRIVATE: &[(&str, Refusal)] = &[
    ("__ioctl_final_num_attrs", Refusal::Code),
    ("__verbs_log", Refusal::Nothing),
    ("_verbs_init_and_alloc_context", Refusal::Null),
    ("execute_ioctl", Refusal::Code),
    ("ibv_cmd_advise_mr", Refusal::Code),
    ("ibv_cmd_alloc_dm", Refusal::Code),
    ("ibv_cmd_alloc_mw", Refusal::Code),
    ("ibv_cmd_alloc_pd", Refusal::Code),
    ("ibv_cmd_attach_mcast", Refusal::Code),
    ("ibv_cmd_close_xrcd", Refusal::Code),
    ("ibv_cmd_create_ah", Refusal::Code),
    ("ibv_cmd_create_counters", Refusal::Code),
    ("ibv_cmd_create_cq", Refusal::Code),
    ("ibv_cmd_create_cq_ex", Refusal::Code),
    ("ibv_cmd_create_cq_ex2", Refusal::Code),
    ("ibv_cmd_create_flow", Refusal::Code),
    ("ibv_cmd_create_flow_action_esp", Refusal::Code),
    ("ibv_cmd_create_qp", Refusal::Code),
    ("ibv_cmd_create_qp_ex", Refusal::Code),
    ("ibv_cmd_create_qp_ex2", Refusal::Code),
    ("ibv_cmd_create_rwq_ind_table", Refusal::Code),
    ("ibv_cmd_create_srq", Refusal::Code),
    ("ibv_cmd_create_srq_ex", Refusal::Code),
    ("ibv_cmd_create_wq", Refusal::Code),
    ("ibv_cmd_dealloc_mw", Refusal::Code),
    ("ibv_cmd_dealloc_pd", Refusal::Code),
    ("ibv_cmd_dereg_mr", Refusal::Code),
    ("ibv_cmd_destroy_ah", Refusal::Code),
    ("ibv_cmd_destroy_counters", Refusal::Code),
    ("ibv_cmd_destroy_cq", Refusal::Code),
    ("ibv_cmd_destroy_flow", Refusal::Code),
    ("ibv_cmd_destroy_flow_action", Refusal::Code),
    ("ibv_cmd_destroy_qp", Refusal::Code),
    ("ibv_cmd_destroy_rwq_ind_table", Refusal::Code),
    ("ibv_cmd_destroy_srq", Refusal::Code),
    ("ibv_cmd_destroy_wq", Refusal::Code),
    ("ibv_cmd_detach_mcast", Refusal::Code),
    ("ibv_cmd_free_dm", Refusal::Code),
    ("ibv_cmd_get_context", Refusal::Code),
    ("ibv_cmd_modify_cq", Refusal::Code),
    ("ibv_cmd_modify_flow_action_esp", Refusal::Code),
    ("ibv_cmd_modify_qp", Refusal::Code),
    ("ibv_cmd_modify_qp_ex", Refusal::Code),
    ("ibv_cmd_modify_srq", Refusal::Code),
    ("ibv_cmd_modify_wq", Refusal::Code),
    ("ibv_cmd_open_qp", Refusal::Code),
    ("ibv_cmd_open_xrcd", Refusal::Code),
    ("ibv_cmd_poll_cq", Refusal::Code),
    ("ibv_cmd_post_recv", Refusal::Code),
    ("ibv_cmd_post_send", Refusal::Code),
    ("ibv_cmd_post_srq_recv", Refusal::Code),
    ("ibv_cmd_query_context", Refusal::Code),
    ("ibv_cmd_query_device_any", Refusal::Code),
    ("ibv_cmd_query_mr", Refusal::Code),
    ("ibv_cmd_query_port", Refusal::Code),
    ("ibv_cmd_query_qp", Refusal::Code),
    ("ibv_cmd_query_srq", Refusal::Code),
    ("ibv_cmd_read_counters", Refusal::Code),
    ("ibv_cmd_reg_dm_mr", Refusal::Code),
    ("ibv_cmd_reg_dmabuf_mr", Refusal::Code),
    ("ibv_cmd_reg_mr", Refusal::Code),
    ("ibv_cmd_reg_mr_ex", Refusal::Code),
    ("ibv_cmd_req_notify_cq", Refusal::Code),
    ("ibv_cmd_rereg_mr", Refusal::Code),
    ("ibv_cmd_resize_cq", Refusal::Code),
    ("ibv_read_ibdev_sysfs_file", Refusal::Code),
    ("verbs_init_cq", Refusal::Nothing),
    ("verbs_open_device", Refusal::Null),
    ("verbs_set_ops", Refusal::Nothing),
    ("verbs_uninit_context", Refusal::Nothing),
];

/// The private name that programs use, and the Rust function behind it.
pub const PRIVATE_SERVED: (&str, &str) = ("ibv_query_gid_type", "soft_verbs_query_gid_type");

/// Rust functions that the C file calls.
const HELPERS: [&str; 2] = ["soft_verbs_refuse", PRIVATE_SERVED.1];

/// Public names with their versions.
pub fn public() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVED.iter().copied().chain(REFUSED.iter().map(|&(name, version, _)| (name, version)))
}

/// The version node of a private release.
pub fn private_version(release: u32) -> String {
    format!("IBVERBS_PRIVATE_{release}")
}

/// Names under the private version of `release`.
pub fn private(release: u32) -> Vec<String> {
    let names = PRIVATE.iter().map(|&(name, _)| name.to_owned());
    let own = [PRIVATE_SERVED.0.to_owned(), register_driver(release), "verbs_allow_disassociate_destroy".to_owned()];
    names.chain(own).collect()
}

/// The name carries its release, so that a vendor library of another one does not bind.
fn register_driver(release: u32) -> String {
    format!("verbs_register_driver_{release}")
}

/// The linker's version script: every name under its version, and nothing else visible.
pub fn version_script() -> String {
    let mut script = String::new();
    let mut before = "";
    for version in VERSIONS {
        let names: String = public()
            .filter(|(_, at)| at == version)
            .fold(String::new(), |list, (name, _)| list + "    " + name + ";\n");
        let names = if names.is_empty() { names } else { format!("  global:\n{names}") };
        let local = if before.is_empty() { "  local:\n    *;\n" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(script, "{version} {{\n{names}{local}}} {before};");
        before = version;
    }
    for release in PRIVATE_VERSIONS {
        // The C file puts names here itself; a node without any would be dropped.
        let _ = writeln!(script, "{} {{\n}} {before};", private_version(*release));
    }
    script
}

/// C source of the functions that only refuse.
pub fn refusing_source() -> String {
    let mut source = String::from(
        "#include <stdint.h>\nextern int soft_verbs_refuse(const char *name);\n\
         extern int soft_verbs_query_gid_type(void *, uint8_t, unsigned, unsigned *);\n",
    );
    for &(name, _, refusal) in REFUSED {
        function(&mut source, name, name, refusal);
    }
    for &release in PRIVATE_VERSIONS {
        let at = private_version(release);
        let bind = |source: &mut String, local: &str, name: &str| {
            let _ = writeln!(source, "__asm__(\".symver {local}, {name}@{at}\");");
        };
        for &(name, refusal) in PRIVATE {
            let local = format!("soft_{release}_{name}");
            function(&mut source, &local, name, refusal);
            bind(&mut source, &local, name);
        }
        let register = register_driver(release);
        function(&mut source, &format!("soft_{register}"), &register, Refusal::Nothing);
        bind(&mut source, &format!("soft_{register}"), &register);
        let _ = writeln!(
            source,
            "int soft_{release}_gid_type(void *c, uint8_t p, unsigned i, unsigned *t) \
             {{ return soft_verbs_query_gid_type(c, p, i, t); }}\n_Bool soft_{release}_flag = 0;"
        );
        bind(&mut source, &format!("soft_{release}_gid_type"), PRIVATE_SERVED.0);
        bind(&mut source, &format!("soft_{release}_flag"), "verbs_allow_disassociate_destroy");
    }
    source
}

fn function(source: &mut String, symbol: &str, name: &str, refusal: Refusal) {
    let text = match refusal {
        Refusal::Code => format!("int {symbol}(void) {{ return soft_verbs_refuse(\"{name}\"); }}"),
        Refusal::Null => format!("void *{symbol}(void) {{ soft_verbs_refuse(\"{name}\"); return 0; }}"),
        // Told to load-time constructors too, who must not be alarmed.
        Refusal::Nothing => format!("void {symbol}(void) {{ }}"),
    };
    source.push_str(&text);
    source.push('\n');
}

/// Symbols that the linker must take from the Rust archive.
pub fn wanted() -> impl Iterator<Item = &'static str> {
    SERVED.iter().map(|&(name, _)| name).chain(HELPERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_known_version() {
        // given all public names, then each is there once, under a version of the chain
        let mut seen = std::collections::HashSet::new();
        for (name, version) in public() {
            assert!(seen.insert(name), "{name} twice");
            assert!(VERSIONS.contains(&version), "{name} at {version}");
        }
    }

    #[test]
    fn the_script_chains_versions_and_hides_the_rest() {
        // given the script, then nodes follow each other and only the first hides what is not named
        let script = version_script();
        assert!(script.contains("} IBVERBS_1.0;") && script.contains("} IBVERBS_1.15;"), "{script}");
        assert_eq!(script.matches("local:").count(), 1);
        assert!(script.contains("IBVERBS_PRIVATE_34 {"));
    }
}
