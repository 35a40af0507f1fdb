//! One table out of seven: where versions differ, the variant says which shape the function has.
//!
//! For: `Plugin`. Must not know: how a function is called. Threads: plain data.

use core::ffi::{c_char, c_int};

use super::OpenError;
use crate::*;

#[derive(Clone, Copy)]
pub(super) enum Init {
    V6(InitV6Fn),
    V10(InitV10Fn),
    V11(InitV11Fn),
}

#[derive(Clone, Copy)]
pub(super) enum GetProperties {
    V6(GetPropertiesFn<PropertiesV6>),
    V7(GetPropertiesFn<PropertiesV7>),
    V8(GetPropertiesFn<PropertiesV8>),
    V9(GetPropertiesFn<PropertiesV9>),
    V11(GetPropertiesFn<PropertiesV11>),
    V12(GetPropertiesFn<PropertiesV12>),
}

#[derive(Clone, Copy)]
pub(super) enum Listen {
    V6(ListenV6Fn),
    V11(ListenV11Fn),
}

#[derive(Clone, Copy)]
pub(super) enum Connect {
    V6(ConnectV6Fn),
    V7(ConnectV7Fn),
    V10(ConnectV10Fn),
    V11(ConnectV11Fn),
}

#[derive(Clone, Copy)]
pub(super) enum Accept {
    V6(AcceptV6Fn),
    V7(AcceptV7Fn),
}

#[derive(Clone, Copy)]
pub(super) enum RegMr {
    Int(RegMrFn<c_int>),
    Size(RegMrFn<usize>),
}

#[derive(Clone, Copy)]
pub(super) enum Isend {
    Int(IsendFn<c_int>),
    Size(IsendFn<usize>),
    V10(IsendV10Fn),
}

#[derive(Clone, Copy)]
pub(super) enum Irecv {
    Int(IrecvFn<c_int>),
    Size(IrecvFn<usize>),
    V10(IrecvV10Fn),
}

/// The functions of a table, in the shape of whatever version it had.
pub(super) struct Calls {
    pub(super) name: *const c_char,
    pub(super) init: Init,
    pub(super) devices: DevicesFn,
    pub(super) get_properties: GetProperties,
    pub(super) listen: Listen,
    pub(super) connect: Connect,
    pub(super) accept: Accept,
    pub(super) reg_mr: RegMr,
    pub(super) dereg_mr: DeregMrFn,
    pub(super) isend: Isend,
    pub(super) irecv: Irecv,
    pub(super) iflush: Option<IflushFn>,
    pub(super) test: TestFn,
    pub(super) close_send: CloseFn,
    pub(super) close_recv: CloseFn,
    pub(super) close_listen: CloseFn,
    pub(super) finalize: Option<FinalizeFn>,
    pub(super) set_net_attr: Option<SetNetAttrFn>,
}

macro_rules! from_table {
    (
        $name:ident, $table:ty, $version:expr,
        $init:ident, $properties:ident, $listen:ident, $connect:ident, $accept:ident,
        $reg:ident, $isend:ident, $irecv:ident,
        |$t:ident| $finalize:expr, $attr:expr
    ) => {
        pub(super) fn $name($t: &$table) -> Result<Self, OpenError> {
            fn need<F>(member: &'static str, f: Option<F>) -> Result<F, OpenError> {
                f.ok_or(OpenError::NoMember { version: $version, member })
            }
            Ok(Self {
                name: $t.name,
                init: Init::$init(need("init", $t.init)?),
                devices: need("devices", $t.devices)?,
                get_properties: GetProperties::$properties(need("getProperties", $t.get_properties)?),
                listen: Listen::$listen(need("listen", $t.listen)?),
                connect: Connect::$connect(need("connect", $t.connect)?),
                accept: Accept::$accept(need("accept", $t.accept)?),
                reg_mr: RegMr::$reg(need("regMr", $t.reg_mr)?),
                dereg_mr: need("deregMr", $t.dereg_mr)?,
                isend: Isend::$isend(need("isend", $t.isend)?),
                irecv: Irecv::$irecv(need("irecv", $t.irecv)?),
                iflush: $t.iflush,
                test: need("test", $t.test)?,
                close_send: need("closeSend", $t.close_send)?,
                close_recv: need("closeRecv", $t.close_recv)?,
                close_listen: need("closeListen", $t.close_listen)?,
                finalize: $finalize,
                set_net_attr: $attr,
            })
        }
    };
}

#[rustfmt::skip]
impl Calls {
    from_table!(v6, NetV6, 6, V6, V6, V6, V6, V6, Int, Int, Int, |t| None, None);
    from_table!(v7, NetV7, 7, V6, V7, V6, V7, V7, Int, Int, Int, |t| None, None);
    from_table!(v8, NetV8, 8, V6, V8, V6, V7, V7, Size, Int, Int, |t| None, None);
    from_table!(v9, NetV9, 9, V6, V9, V6, V7, V7, Size, Size, Size, |t| None, None);
    from_table!(v10, NetV10, 10, V10, V9, V6, V10, V7, Size, V10, V10, |t| None, None);
    from_table!(v11, NetV11, 11, V11, V11, V11, V11, V7, Size, V10, V10,
        |t| Some(need("finalize", t.finalize)?), t.set_net_attr);
    from_table!(v12, NetV12, 12, V11, V12, V11, V11, V7, Size, V10, V10,
        |t| Some(need("finalize", t.finalize)?), t.set_net_attr);
}
