//! Commands: who may run what, and where answers go.

use std::collections::BTreeMap;

use ::auth::MgrCaller;
use bytes::Bytes;
use denc::DecodeError;
use env::ConnId;
use messages::{
    Command, CommandReply, Envelope, LogPriority, Message, MgrCommand, MgrCommandReply, MonCommand,
    MonCommandAck, Paxos,
};
use types::{AddrKind, AddrVec, EntityKind, Epoch};

use super::{Monitor, Output, Wish};
use crate::lines::LINE_BYTES_MAX;
use crate::state::Answered;
use crate::{CommandCtx, Mutation, Outcome, Reply, SessionGroup, Wait, commands, session};

const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const EACCES: i32 = 13;

/// Bytes of one command; longer ones are refused.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// An answer of more bytes is not remembered.
const REMEMBERED_BYTES_MAX: usize = 4096;
/// Answers that may wait for something.
const WAITING_MAX: usize = 100_000;

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// `MMonCommandAck`
    Mon { conn: ConnId, tid: u64, cmd: Vec<Bytes> },
    /// `MMgrCommandReply`
    Mgr { conn: ConnId, tid: u64 },
    /// `MCommandReply`
    Tell { conn: ConnId, tid: u64 },
    /// Of the admin socket.
    Local { id: u64 },
}

impl Answer {
    fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Mon { conn, .. } | Self::Mgr { conn, .. } | Self::Tell { conn, .. } => {
                Some(*conn)
            }
            Self::Local { .. } => None,
        }
    }
}

/// An address as audit lines show it: clients' "any" goes without its kind.
fn plain_addrs(addrs: &AddrVec) -> String {
    match addrs.0.as_slice() {
        [one] if one.kind == AddrKind::ANY => one.to_string().trim_start_matches("any:").to_owned(),
        _ => addrs.to_string(),
    }
}

/// A command as audit lines show it: as it came, but for secrets and for what no line holds.
fn shown(cmd: &[Bytes], args: &cli::Args) -> String {
    if let Some(open) = cli::find(args).and_then(|known| known.shown(args)) {
        return format!("[{open}]");
    }
    let mut left = LINE_BYTES_MAX;
    let parts = cmd.iter().map(|part| {
        let part = &part[..part.len().min(left)];
        left -= part.len();
        String::from_utf8_lossy(part)
    });
    format!("[{}]", parts.collect::<Vec<_>>().join(","))
}

impl Monitor {
    pub(super) fn on_mon_command(&mut self, conn: ConnId, tid: u64, msg: MonCommand) {
        let answer = Answer::Mon { conn, tid, cmd: msg.cmd.clone() };
        if msg.fsid != self.state.fsid {
            return self.answer(&answer, Reply::err(EPERM, "wrong fsid"));
        }
        if let Some(done) = self.answered(conn, MonCommand::KIND, tid) {
            let reply = Reply { r: 0, rs: done.rs.clone(), out: done.out.clone() };
            return self.answer(&answer, reply);
        }
        self.command(&answer, &msg.cmd, &msg.input);
    }

    /// What a client was, or would have been, told when its request was first handled. It
    /// asks again when a monitor dies before the answer is out.
    pub(super) fn answered(&self, conn: ConnId, kind: u16, tid: u64) -> Option<&Answered> {
        let id = self.sessions.get(&conn)?.info.global_id;
        let key = |a: &&Answered| a.global_id == id && a.tid == tid && a.kind == kind;
        self.state.answered.iter().rev().find(key).filter(|_| id != 0 && tid != 0)
    }

    /// The mutation that remembers an answer; `None` where its asker could not be told from
    /// others, or the answer is long and made anew just as well.
    pub(super) fn remember(
        &self,
        conn: ConnId,
        kind: u16,
        tid: u64,
        rs: &str,
        out: &Bytes,
    ) -> Option<Mutation> {
        let id = self.sessions.get(&conn)?.info.global_id;
        let fits = id != 0 && tid != 0 && rs.len() + out.len() <= REMEMBERED_BYTES_MAX;
        let (rs, out) = (rs.to_owned(), out.clone());
        fits.then(|| Mutation::Answered(Answered { global_id: id, kind, tid, rs, out }))
    }

    pub(super) fn on_mgr_command(&mut self, conn: ConnId, tid: u64, msg: &MgrCommand) {
        self.command(&Answer::Mgr { conn, tid }, &msg.cmd, &msg.input);
    }

    /// `ceph tell mon.X ...`, or `ceph tell mgr ...` at the manager's door.
    pub(super) fn on_tell(&mut self, conn: ConnId, env: &Envelope) -> Result<(), DecodeError> {
        let msg = Command::decode(env)?;
        let answer = Answer::Tell { conn, tid: env.tid };
        let Some(session) = self.sessions.get(&conn) else { return Ok(()) };
        if session.at_mgr {
            // What is behind the manager's door is no monitor: only its commands are there.
            self.command(&answer, &msg.cmd, &msg.input);
            return Ok(());
        }
        // As the peer asks: all rights on the service `mon`, whatever the command does.
        let info = &session.info;
        let refusal = match cli::Args::parse(&msg.cmd) {
            Err(e) => Some(Reply::err(EINVAL, e.to_string())),
            Ok(args) if session::may_run(info, "mon", args.prefix(), &BTreeMap::new(), "rwx") => {
                None
            }
            Ok(_) => Some(Reply::err(EACCES, "access denied")),
        };
        if let Some(refusal) = refusal {
            self.answer(&answer, refusal);
            return Ok(());
        }
        if self.serving.is_none() && !commands::is_own(&msg.cmd) {
            self.keep(conn, env.clone()); // the cluster's: the leader's to answer
            return Ok(());
        }
        self.command(&answer, &msg.cmd, &msg.input);
        Ok(())
    }

    /// A command on the admin socket; whoever reaches it may do everything. The answer
    /// comes as [`Output::Local`] with `id`.
    pub fn on_admin_command(&mut self, now: env::Now, id: u64, json: &[u8], input: &Bytes) {
        self.now = now;
        let cmd = [Bytes::copy_from_slice(json)];
        if commands::is_own(&cmd) {
            self.local_command(id, &cmd, input);
        } else {
            self.keep_local(id, &cmd, input);
        }
    }

    pub(super) fn local_command(&mut self, id: u64, cmd: &[Bytes], input: &Bytes) {
        self.command(&Answer::Local { id }, cmd, input);
    }

    fn command(&mut self, answer: &Answer, cmd: &[Bytes], input: &Bytes) {
        if cmd.iter().map(Bytes::len).sum::<usize>() > COMMAND_BYTES_MAX {
            return self.answer(answer, Reply::err(EINVAL, "command too long"));
        }
        let local = self.local_session();
        let (info, at_mgr) = match answer.conn() {
            Some(conn) => match self.sessions.get(&conn) {
                Some(session) => (session.info.clone(), session.at_mgr),
                None => return,
            },
            None => (local, false),
        };
        let mut args = match cli::Args::parse(cmd) {
            Ok(args) => args,
            // To the manager a command without a name is as one that it does not know.
            Err(e) if at_mgr && e.is_about_prefix() => {
                let caps = self.mgr_caps(&info, true);
                return self.answer(answer, session::no_handler(&info, &caps, ""));
            }
            Err(e) => return self.answer(answer, Reply::err(EINVAL, e.to_string())),
        };
        let tell = !at_mgr && matches!(answer, Answer::Tell { .. } | Answer::Local { .. });
        let who = format!(
            "from='{} {}' entity='{}' cmd={}",
            info.entity,
            plain_addrs(&info.addrs),
            info.name,
            shown(cmd, &args)
        );
        let prefix = args.prefix().to_owned();
        let (mut rw, mut perm) = (false, "rw");
        let mut caller = MgrCaller {
            name: info.name.clone(),
            addr: info.addrs.front(),
            caps: self.mgr_caps(&info, at_mgr),
            wants: ::auth::Rights::NONE,
        };
        if prefix != "get_command_descriptions" {
            if tell && (session::is_administrator(&info) || commands::is_own(cmd)) {
                rw = true; // who sent it may do everything with this monitor
                caller.caps = ::auth::MgrCap::allow_all();
            } else {
                let known = match self.judge(&info, at_mgr, &args) {
                    Ok(known) => known,
                    Err(refusal) => {
                        if refusal.r == -EACCES {
                            self.audit(LogPriority::INFO, format!("{who}:  access denied"));
                        }
                        return self.answer(answer, refusal);
                    }
                };
                if !session::is_administrator(&info) {
                    // Nothing is done by words that were not judged.
                    args.keep_known(&known.sig);
                }
                (rw, perm) = (known.perm.contains(['w', 'x']), known.perm);
                caller.wants = session::rights(known.perm);
                // What the manager itself looks at, again and again, is no line for an audit.
                if rw || !self.is_active_manager(&info) {
                    let level = if rw { LogPriority::INFO } else { LogPriority::DEBUG };
                    self.audit(level, format!("{who}: dispatch"));
                }
            }
        }
        self.refresh_for_commands();
        let mut ctx = CommandCtx {
            now: self.now,
            state: &self.state,
            volatile: &self.volatile,
            session: &info,
            cmd: &args,
            inbuf: input,
            rng: &mut *self.rng,
            options: &self.config.options,
        };
        let outcome = if tell { commands::tell(&mut ctx) } else { commands::run(&mut ctx) };
        let outcome = match outcome {
            Outcome::Balancer { step, then } => {
                let wall = self.wall();
                self.volatile.balancer.take(*step, wall);
                *then
            }
            Outcome::FileSystems { edit, then } => {
                Outcome::Propose { mutation: self.fs_mutation(*edit), then }
            }
            other => other,
        };
        let finished = match outcome {
            Outcome::Reply(reply) => {
                self.answer(answer, reply);
                false
            }
            Outcome::Propose { mutation, then } => {
                self.propose(mutation);
                if let Answer::Mon { conn, tid, .. } = answer
                    && let Some(m) =
                        self.remember(*conn, MonCommand::KIND, *tid, &then.rs, &then.out)
                {
                    self.propose(m);
                }
                self.answer(answer, then);
                true
            }
            Outcome::WaitFor { wait, then } => {
                self.wait_for(answer, wait, then);
                false
            }
            Outcome::ClearProgress(reply) => {
                self.volatile.progress.clear();
                self.answer(answer, reply);
                true
            }
            Outcome::Module => {
                let ask = super::managers::ask_of(cmd, input, &caller, perm);
                self.ask_module(answer, args, caller, &ask);
                false
            }
            Outcome::FailManager { who } => {
                let reply = self.managers_fail(&who);
                self.answer(answer, reply);
                true
            }
            Outcome::Balancer { .. } | Outcome::FileSystems { .. } => {
                unreachable!("one step, and then something else")
            }
            Outcome::Send { to, then } => {
                for (osd, env) in to {
                    for conn in self.conns_of_osd(osd) {
                        self.send(conn, env.clone());
                    }
                }
                self.answer(answer, then);
                false
            }
        };
        if finished && rw && !tell {
            let who = who.replacen("cmd=", "cmd='", 1);
            self.audit(LogPriority::INFO, format!("{who}': finished"));
        }
    }

    /// What a ping is answered with.
    pub(super) fn pong(&mut self) -> String {
        self.refresh_for_commands();
        let info = self.local_session();
        let args = cli::Args::new("ping");
        commands::pong(&mut CommandCtx {
            now: self.now,
            state: &self.state,
            volatile: &self.volatile,
            session: &info,
            cmd: &args,
            inbuf: &Bytes::new(),
            rng: &mut *self.rng,
            options: &self.config.options,
        })
    }

    /// What a peer may do at the manager: by its ticket where that is for it, else by the key
    /// database.
    fn mgr_caps(&self, info: &crate::SessionInfo, at_mgr: bool) -> ::auth::MgrCap {
        let of_db = || {
            let text = self.state.auth.caps(&info.name, EntityKind::MGR).unwrap_or("");
            ::auth::MgrCap::parse_lenient(text)
        };
        match &info.mgr_caps {
            Some(caps) => caps.clone(),
            None if at_mgr => ::auth::MgrCap::default(),
            None => of_db(),
        }
    }

    /// The command that a peer means and may run by the door it came by, or what to answer.
    fn judge(
        &self,
        info: &crate::SessionInfo,
        at_mgr: bool,
        args: &cli::Args,
    ) -> Result<&'static cli::Command, Reply> {
        let for_mgr = |c: &&cli::Command| c.flags.has(cli::Flags::MGR);
        if at_mgr {
            return session::judge_at_mgr(info, &self.mgr_caps(info, true), args);
        }
        let Some(known) = cli::find(args) else {
            return Err(Reply::err(EINVAL, "command not known"));
        };
        if for_mgr(&known) && self.is_active_manager(info) {
            return Ok(known);
        }
        // Clients send the manager's commands here too, where the peer's client would go to the
        // manager: its caps count for them. What a module of it answers takes nothing else.
        if for_mgr(&known) {
            let caps = self.mgr_caps(info, false);
            if session::may_run_at_mgr(info, &caps, known, args) {
                return Ok(known);
            }
            if known.manager_module().is_some() {
                return Err(session::mgr_denies());
            }
        }
        let (module, perm) = (known.module, known.perm);
        let may = session::may_run(info, module, args.prefix(), &args.judged(&known.sig), perm);
        if may { Ok(known) } else { Err(Reply::err(EACCES, "access denied")) }
    }

    pub(super) fn local_session(&self) -> crate::SessionInfo {
        crate::SessionInfo {
            conn: ConnId(0),
            name: self.name(),
            entity: types::EntityId::new(EntityKind::MON, i64::from(self.rank)),
            global_id: 0,
            addrs: AddrVec::default(),
            features: denc::Features::ALL,
            caps: ::auth::MonCap::allow_all(),
            mgr_caps: Some(::auth::MgrCap::allow_all()),
            hostname: String::new(),
        }
    }

    /// What commands look at and is not kept up to date all the time.
    fn refresh_for_commands(&mut self) {
        let mut groups: BTreeMap<(EntityKind, u64), u32> = BTreeMap::new();
        for session in self.sessions.values() {
            let key = (session.info.name.kind, session.info.features.0);
            *groups.entry(key).or_default() += 1;
        }
        let group = |((kind, features), count)| SessionGroup {
            kind,
            features: denc::Features(features),
            count,
        };
        self.volatile.groups = groups.into_iter().map(group).collect();
        self.refresh_health();
    }

    fn wait_for(&mut self, answer: &Answer, wait: Wait, reply: Reply) {
        match wait {
            Wait::Commit => self.answer(answer, reply),
            Wait::OsdMap(epoch) if epoch <= self.state.osd_history.last => {
                self.answer(answer, reply);
            }
            Wait::OsdMap(epoch) => {
                if self.waiting.len() >= WAITING_MAX {
                    let rs = "too many commands wait for OSD maps: ask again".to_owned();
                    return self.answer(answer, Reply::err(EAGAIN, rs));
                }
                let serving = self.serving.take();
                self.waiting.push((epoch, answer.clone(), reply, serving));
            }
        }
    }

    /// Answers what waited for an OSD map that is there now.
    pub(super) fn answer_waiting(&mut self) {
        let last = self.state.osd_history.last;
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w| w.0 <= last);
        self.waiting = rest;
        for (_, answer, reply, serving) in ready {
            self.answer(&answer, reply);
            if let Some((to, rid)) = serving {
                self.emit(Wish::Served { to, rid });
            }
        }
    }

    pub(super) fn answer(&mut self, answer: &Answer, reply: Reply) {
        match answer {
            Answer::Mon { conn, tid, cmd } => {
                let version = u64::from(self.state.osd_history.last.0);
                let ack = MonCommandAck {
                    paxos: Paxos { version },
                    r: reply.r,
                    rs: reply.rs,
                    cmd: cmd.clone(),
                    output: reply.out,
                };
                self.tell(*conn, *tid, &ack);
            }
            Answer::Mgr { conn, tid } => {
                let ack = MgrCommandReply { r: reply.r, rs: reply.rs, output: reply.out };
                self.tell(*conn, *tid, &ack);
            }
            Answer::Tell { conn, tid } => {
                let ack = CommandReply { r: reply.r, rs: reply.rs, output: reply.out };
                self.tell(*conn, *tid, &ack);
            }
            Answer::Local { id } => self.emit(Output::Local { id: *id, reply }),
        }
    }
}

/// An answer that waits for an OSD map, and the message it is for.
pub(super) type Waiting = (Epoch, Answer, Reply, Option<(Option<u64>, u64)>);
