//! `cls ...`: object classes that operators upload. The peer has nothing like it.

use cls::wasm::Module;

use super::{EFBIG, EINVAL, ENOENT, ENOSPC, Run, fail, ok, out, propose};
use crate::classes::{ALL_BYTES_MAX, MODULES_MAX};
use crate::{CommandCtx, Mutation};

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let all = &ctx.state.classes;
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    match what {
        "put" => {
            let code = ctx.inbuf.clone();
            if code.is_empty() {
                return Err(fail(EINVAL, "no module came with it: -i FILE"));
            }
            if code.len() > cls::wasm::MODULE_BYTES_MAX {
                let (len, max) = (code.len(), cls::wasm::MODULE_BYTES_MAX);
                return Err(fail(
                    EFBIG,
                    format!("the module has {len} bytes; at most {max} are taken"),
                ));
            }
            Module::new(&name, &code).map_err(|e| fail(EINVAL, e.to_string()))?;
            if all.modules.get(&name).is_some_and(|m| m.code == code) {
                return ok(format!("class '{name}' is this module already"));
            }
            if !all.modules.contains_key(&name) && all.modules.len() >= MODULES_MAX {
                return Err(fail(
                    ENOSPC,
                    format!("{MODULES_MAX} modules are there, the most there may be"),
                ));
            }
            if all.bytes_without(&name) + code.len() > ALL_BYTES_MAX {
                return Err(fail(
                    ENOSPC,
                    format!("all modules together may have {ALL_BYTES_MAX} bytes"),
                ));
            }
            let done = format!("class '{name}' is version {}", all.version + 1);
            propose(Mutation::ClassModule { name, code: Some(code) }, done)
        }
        "rm" => {
            if !all.modules.contains_key(&name) {
                return Err(fail(ENOENT, format!("there is no module '{name}'")));
            }
            let done = format!("class '{name}' is removed");
            propose(Mutation::ClassModule { name, code: None }, done)
        }
        "get" => match all.modules.get(&name) {
            Some(module) => out(module.code.clone()),
            None => Err(fail(ENOENT, format!("there is no module '{name}'"))),
        },
        "ls" => list(ctx),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

fn list(ctx: &mut CommandCtx<'_>) -> Run {
    let all = &ctx.state.classes;
    let methods = |name: &str, code: &[u8]| -> Vec<(String, &'static str)> {
        let Ok(module) = Module::new(name, code) else { return Vec::new() };
        module.methods().map(|(name, flags)| (name.to_owned(), cls::flags_text(flags))).collect()
    };
    let Some(mut f) = ctx.formatter() else {
        let line = |(name, m): (&String, &crate::classes::ClassModule)| {
            let methods: Vec<String> =
                methods(name, &m.code).iter().map(|(n, flags)| format!("{n}({flags})")).collect();
            format!("{name} v{} {} bytes: {}\n", m.version, m.code.len(), methods.join(" "))
        };
        return out(all.modules.iter().map(line).collect::<String>());
    };
    f.object("classes", |f| {
        f.int("version", all.version);
        f.array("modules", |f| {
            for (name, module) in &all.modules {
                f.object("module", |f| {
                    f.string("name", name);
                    f.int("version", module.version);
                    f.int("bytes", module.code.len() as u64);
                    f.object("methods", |f| {
                        for (method, flags) in methods(name, &module.code) {
                            f.string(&method, flags);
                        }
                    });
                });
            }
        });
    });
    out(f.finish())
}
