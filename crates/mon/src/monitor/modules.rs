//! Modules of the manager: they run outside this role, and answer commands through it.

use std::collections::{BTreeMap, BTreeSet};

use ::auth::{CryptoKey, KeyKind, MgrCaller};
use messages::ManagerAsk;
use types::{EntityKind, EntityName, UTime};

use super::command::Answer;
use super::{Monitor, Output};
use crate::commands::EAGAIN;
use crate::{AuthChange, Mutation, Reply};

/// Commands that may wait for modules.
const OPEN_MAX: usize = 10_000;
/// As whom modules are clients of the cluster.
const CLIENT: &str = "argonaut-mgr";
/// What they may do: what they must remember of the whole cluster is among the settings.
const CAPS: [(&str, &str); 2] = [
    (
        "mon",
        "profile rbd, \
         allow command \"config get\" with who=mgr, \
         allow command \"config set\" with name prefix mgr/rbd_support/, \
         allow command \"config rm\" with name prefix mgr/rbd_support/",
    ),
    ("osd", "profile rbd"),
];

/// What is asked of modules.
#[derive(Debug, Default)]
pub(super) struct Asked {
    last: u64,
    open: BTreeMap<u64, Answer>,
    /// Those of them that a manager's process was asked.
    elsewhere: BTreeSet<u64>,
    /// A key was asked of the log.
    key: bool,
}

impl Monitor {
    /// Has a module of the manager answer: in the manager's process, or beside this monitor where
    /// none is registered.
    pub(super) fn ask_module(
        &mut self,
        answer: &Answer,
        args: cli::Args,
        caller: MgrCaller,
        ask: &ManagerAsk,
    ) {
        if self.modules.open.len() >= OPEN_MAX {
            let why = "too much is asked of the manager's modules: ask again";
            return self.answer(answer, Reply::err(EAGAIN, why));
        }
        self.modules.last += 1;
        let id = self.modules.last;
        match self.ask_manager(id, ask) {
            Ok(true) => {
                self.modules.elsewhere.insert(id);
                self.modules.open.insert(id, answer.clone());
                return;
            }
            Ok(false) => {}
            Err(reply) => return self.answer(answer, reply),
        }
        self.modules.open.insert(id, answer.clone());
        self.out.push(Output::Module { id, args, caller: Box::new(caller) }.into());
    }

    /// What a module of the manager answers to [`Output::Module`].
    pub fn on_module_answer(&mut self, now: env::Now, id: u64, reply: Reply) {
        self.now = now;
        self.modules.elsewhere.remove(&id);
        if let Some(answer) = self.modules.open.remove(&id) {
            self.answer(&answer, reply);
        }
    }

    /// The manager that was asked is no longer the active one.
    pub(super) fn give_up_asks(&mut self) {
        for id in std::mem::take(&mut self.modules.elsewhere) {
            if let Some(answer) = self.modules.open.remove(&id) {
                let why = "the manager was replaced meanwhile: look what was done and ask again";
                self.answer(&answer, Reply::err(EAGAIN, why));
            }
        }
    }

    /// Whether modules run beside this monitor, or are about to: it leads, no manager is registered,
    /// and some pool is for what one does.
    #[must_use]
    pub fn wants_modules(&self) -> bool {
        let has_images = |p: &maps::PgPool| p.application_metadata.contains_key("rbd");
        let elsewhere = crate::managers::is_registered(&self.state.mgrmap);
        self.leads() && !elsewhere && self.state.osdmap.pools.values().any(has_images)
    }

    /// As whom modules of the manager are clients of the cluster: made when there is none yet.
    /// `None` until it is there, while this monitor does not lead, and while no pool is for
    /// what a module does.
    pub fn module_client(&mut self, now: env::Now) -> Option<(EntityName, CryptoKey)> {
        self.now = now;
        if !self.leads() {
            self.modules.key = false;
            return None;
        }
        if !self.wants_modules() {
            return None;
        }
        let name = EntityName::new(EntityKind::CLIENT, CLIENT);
        let caps = CAPS.map(|(service, cap)| (service.to_owned(), cap.to_owned())).into();
        let known = self.state.auth.get(&name).map(|e| (e.key.clone(), e.caps == caps));
        if let Some((key, true)) = known {
            self.modules.key = false;
            return Some((name, key));
        }
        if !std::mem::replace(&mut self.modules.key, true) {
            let wall = UTime::from_nanos(now.wall_ns);
            let auth = self.state.monmap.auth.as_ref();
            let kind = auth.and_then(|a| KeyKind::cipher(a.preferred_cipher));
            let kind = kind.unwrap_or(KeyKind::AES);
            let new = || CryptoKey::generate(kind, wall, &mut *self.rng);
            let key = known.map_or_else(new, |(key, _)| key);
            self.propose(Mutation::Auth(AuthChange::Set { name, key, caps }));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::CAPS;
    use std::collections::BTreeMap;

    /// Settings of its own may be changed by a module, and no others.
    #[test]
    fn caps_say_what_is_meant() {
        let caps = auth::MonCap::parse(CAPS[0].1).unwrap();
        let may = |command: &str, args: &[(&str, &str)], wants| {
            let args = args.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            caps.is_capable(&auth::MonAccess {
                name: &"client.argonaut-mgr".parse().unwrap(),
                addr: &types::EntityAddr::default(),
                service: "config",
                command,
                args: &args.collect::<BTreeMap<_, _>>(),
                wants,
            })
        };
        let (r, rw) = (auth::Rights::R, auth::Rights::R.with(auth::Rights::W));
        assert!(may("config get", &[("who", "mgr"), ("key", "mgr/rbd_support/x")], r));
        assert!(!may("config get", &[("who", "client.admin")], r));
        for command in ["config set", "config rm"] {
            assert!(may(command, &[("who", "mgr"), ("name", "mgr/rbd_support/x")], rw));
            assert!(!may(command, &[("who", "mgr"), ("name", "auth_cluster_required")], rw));
        }
    }
}
