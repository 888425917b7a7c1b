//! The calls that change names and attributes. Each is executed once for each request, and when no other
//! client believes any more what it changes.

use nasd_protocol::encode_result;
use nasd_protocol::manager::{
    Change, Changed, Create, File, FileHandle, Link, MAX_TOLD, ManagerStatus, Mkdir, Mkmount,
    Mknod, Numbered, Procedure, Removexattr, Rename, RenameArguments, Rmdir, Setattr, Setxattr,
    Symlink, Tmpfile, ToldDirectory, Unlink,
};
use nasd_rpc::AcceptStatus;
use nasd_transport::{Answer, Peer};
use nasd_xdr::{Encoder, from_bytes};

use crate::callback_service::{BeginningBy, CallbacksOf};
use crate::caller::Caller;
use crate::namespace::{Namespace, Node, Outcome};
use crate::service::{Reply, results};
use crate::session_service::SessionService;
use crate::xattr::{self, Class};

/// Whether a procedure is one of these.
pub(crate) const fn is_change(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mkmount
            | Procedure::Unlink
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Link
            | Procedure::Tmpfile
            | Procedure::Mknod
            | Procedure::Setxattr
            | Procedure::Removexattr
    )
}

/// What a change answers: a file that was made, or nothing.
pub(crate) trait Made {
    /// Which file.
    fn made(&self) -> Option<FileHandle>;
}

impl Made for () {
    fn made(&self) -> Option<FileHandle> {
        None
    }
}

impl Made for File {
    fn made(&self) -> Option<FileHandle> {
        Some(self.handle)
    }
}

/// The changes that somebody asks for.
pub(crate) struct Changes<'a> {
    names: &'a Namespace,
    sessions: &'a SessionService,
    caller: &'a Caller,
    peer: &'a Peer,
}

impl<'a> Changes<'a> {
    pub(crate) const fn new(
        names: &'a Namespace,
        sessions: &'a SessionService,
        caller: &'a Caller,
        peer: &'a Peer,
    ) -> Changes<'a> {
        Changes { names, sessions, caller, peer }
    }

    pub(crate) fn execute(&self, procedure: Procedure, arguments: &[u8]) -> Reply {
        let names = self.names;
        match procedure {
            Procedure::Setattr => self.once::<Setattr>(arguments, |caller, set| {
                let set_it = |caller: &Caller| names.setattr(caller, set.file, &set.changes);
                match set_it(caller) {
                    // Others may read less by it, or something else.
                    Err(ManagerStatus::Busy) if names.has_callbacks() => {
                        let caller = Caller { stores: vec![set.file], ..caller.clone() };
                        self.storing(set.file, true, set.changes.size, || set_it(&caller))
                    }
                    outcome => outcome,
                }
            }),
            Procedure::Create => self.create(arguments),
            Procedure::Mkdir => self.once_named::<Mkdir, _>(arguments, |caller, new| {
                names.mkdir(caller, new.directory, new.name.as_bytes(), new.mode)
            }),
            Procedure::Symlink => self.once_named::<Symlink, _>(arguments, |caller, new| {
                names.symlink(caller, new.directory, new.name.as_bytes(), &new.target)
            }),
            Procedure::Mkmount => self.once_named::<Mkmount, _>(arguments, |caller, new| {
                let (name, volume) = (new.name.as_bytes(), new.volume.as_bytes());
                names.mkmount(caller, new.directory, name, volume)
            }),
            Procedure::Unlink => self.once_named::<Unlink, _>(arguments, |caller, old| {
                names.unlink(caller, old.directory, old.name.as_bytes())
            }),
            Procedure::Tmpfile => self.once_named::<Tmpfile, _>(arguments, |caller, new| {
                names.tmpfile(caller, new.directory, new.mode)
            }),
            Procedure::Rmdir => self.once_named::<Rmdir, _>(arguments, |caller, old| {
                names.rmdir(caller, old.directory, old.name.as_bytes())
            }),
            Procedure::Rename => self
                .once_named::<Rename, _>(arguments, |caller, rename| self.rename(caller, &rename)),
            Procedure::Link => self.once_named::<Link, _>(arguments, |caller, link| {
                names.link(caller, link.file, link.directory, link.name.as_bytes())
            }),
            Procedure::Mknod => self.once_named::<Mknod, _>(arguments, |caller, new| {
                let node = Node { file_type: new.file_type, mode: new.mode, device: new.device };
                names.mknod(caller, new.directory, new.name.as_bytes(), node)
            }),
            Procedure::Setxattr => self.once::<Setxattr>(arguments, |caller, set| {
                let name = set.name.as_bytes();
                let set_it = || names.setxattr(caller, set.file, name, &set.value, set.flags);
                let set_it = self.storing(set.file, is_rule(name), None, set_it)?;
                self.governed(set.file, name).map(|()| set_it)
            }),
            Procedure::Removexattr => self.once::<Removexattr>(arguments, |caller, old| {
                let name = old.name.as_bytes();
                let remove_it = || names.removexattr(caller, old.file, name);
                let removed = self.storing(old.file, is_rule(name), None, remove_it)?;
                self.governed(old.file, name).map(|()| removed)
            }),
            _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// Changes a file alone.
    fn once<Op: Change>(
        &self,
        arguments: &[u8],
        operation: impl FnOnce(&Caller, Op::Arguments) -> Outcome<Op::Reply>,
    ) -> Reply {
        self.answer::<Op>(arguments, |caller, arguments, _| operation(caller, arguments))
    }

    /// Changes names, and tells of their directories, and of a callback on what was made.
    fn once_named<Op: Change<Reply = Changed<R>>, R: Made>(
        &self,
        arguments: &[u8],
        operation: impl FnOnce(&Caller, Op::Arguments) -> Outcome<R>,
    ) -> Reply {
        self.answer::<Op>(arguments, |caller, arguments, touched| {
            let session = caller.session;
            let reply = operation(caller, arguments)?;
            let directories = self.told_of(touched);
            let promised = reply.made().and_then(|file| self.promise(file, session));
            Ok(Changed { directories, promised, ..Changed::alone(reply) })
        })
    }

    /// Directories after a change, as far as they are known.
    fn told_of(&self, touched: [Option<FileHandle>; 2]) -> Vec<ToldDirectory> {
        let mut directories: Vec<ToldDirectory> = Vec::with_capacity(MAX_TOLD);
        for handle in touched.into_iter().flatten() {
            if directories.iter().all(|told| told.handle != handle)
                && let Some(attributes) = self.names.known_attributes(handle)
            {
                directories.push(ToldDirectory { handle, attributes });
            }
        }
        directories
    }

    /// Makes a regular file. Who wants to store it may begin to with that, where there are callbacks, and no quota: what is set aside for a store
    /// is asked for with the store.
    fn create(&self, arguments: &[u8]) -> Reply {
        let names = self.names;
        self.answer::<Create>(arguments, |caller, new, touched| {
            let (session, name) = (caller.session, new.name.as_bytes());
            let may_begin = new.stores && session != 0 && names.has_callbacks();
            let _under = may_begin.then(|| names.under_quota());
            if !may_begin || names.has_quota() {
                let file = names.create(caller, new.directory, name, new.mode, new.exclusive)?;
                let promised = self.promise(file.handle, session);
                let directories = self.told_of(touched);
                return Ok(Changed { directories, promised, ..Changed::alone(file) });
            }
            let (hub, at) = (self.sessions.hub(), new.directory);
            let beginning = BeginningBy { hub, session };
            let made =
                names.create_to_store(caller, at, name, new.mode, new.exclusive, &beginning)?;
            let directories = self.told_of(touched);
            let changed = Changed { directories, ..Changed::alone(made.file) };
            Ok(if made.is_new { self.beginning(caller, changed) } else { changed })
        })
    }

    /// An answer about a file that was made, with the capability to store it if the client may do that; or else with what it is promised.
    fn beginning(&self, caller: &Caller, made: Changed<File>) -> Changed<File> {
        let (hub, names, file) = (self.sessions.hub(), self.names, made.reply.handle);
        let member = self.peer.identity.to_string();
        let all = CallbacksOf { hub, names, caller, member: &member };
        match all.begun(file) {
            Some((reply, begun)) => {
                names.take_made(file);
                Changed { reply, begun: Some(begun), ..made }
            }
            None => Changed { promised: self.promise(file, caller.session), ..made },
        }
    }

    /// The version that the client holds a callback of on a file that was just made for it.
    fn promise(&self, file: FileHandle, session: u64) -> Option<u64> {
        let version = self.names.take_made(file)?;
        let is_promised = self.sessions.hub().with(|all, _| all.made(session, file, version));
        is_promised.then_some(version)
    }

    /// The files that have the names which are changed, where clients hold callbacks on them. A name that is given to another file at this moment
    /// may be told too late.
    fn files_of<Op: Change>(&self, arguments: &Op::Arguments) -> Vec<FileHandle> {
        if !self.names.has_callbacks() {
            return Vec::new();
        }
        let names = Op::names(arguments).into_iter().flatten();
        names.filter_map(|(at, name)| self.names.leads_to(at, name.as_bytes())).collect()
    }

    /// Moves a name. Where that changes who may do what with a file, it is a store of it.
    fn rename(&self, caller: &Caller, rename: &RenameArguments) -> Outcome<()> {
        let from = (rename.from_directory, rename.from_name.as_bytes());
        let to = (rename.to_directory, rename.to_name.as_bytes());
        let rename_it = |caller: &Caller| self.names.rename(caller, from, to, rename.flags);
        let mut outcome = rename_it(caller);
        for _ in 0..ATTEMPTS {
            if outcome != Err(ManagerStatus::Busy) {
                break;
            }
            // The names may lead elsewhere by the time.
            let files = self.names.files_to_store(from, to, rename.flags);
            let caller = Caller { stores: files.clone(), ..caller.clone() };
            // Once for all: a second one would wait for whoever gives the volume a quota, and he for the first.
            let _under = self.names.under_quota();
            outcome = self.storing_all(&files, &|| rename_it(&caller));
        }
        outcome
    }

    fn storing_all(
        &self,
        files: &[FileHandle],
        operation: &dyn Fn() -> Outcome<()>,
    ) -> Outcome<()> {
        match files.split_first() {
            None => operation(),
            Some((first, rest)) => self.with_callbacks(|callbacks| {
                callbacks.storing_under(*first, None, || self.storing_all(rest, operation))
            }),
        }
    }

    fn with_callbacks<T>(&self, run: impl FnOnce(CallbacksOf<'_>) -> T) -> T {
        let member = self.peer.identity.to_string();
        let (hub, names, caller) = (self.sessions.hub(), self.names, self.caller);
        run(CallbacksOf { hub, names, caller, member: &member })
    }

    /// After an attribute was set or removed: if it was a directory's list as AFS has it, its files have it when this returns. Who asks again since
    /// he was not answered waits for that, too.
    fn governed(&self, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        if xattr::class_of(name) != Ok(Class::AfsAcl) {
            return Ok(());
        }
        self.with_callbacks(|callbacks| callbacks.govern(directory))
    }

    /// Changes a file alone, as a store where that ends what others may do with it.
    fn storing<T>(
        &self,
        file: FileHandle,
        is_store: bool,
        size: Option<u64>,
        operation: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        if !is_store || !self.names.has_callbacks() {
            return operation();
        }
        self.with_callbacks(|callbacks| callbacks.storing(file, size, operation))
    }

    fn answer<Op: Change>(
        &self,
        arguments: &[u8],
        operation: impl FnOnce(&Caller, Op::Arguments, [Option<FileHandle>; 2]) -> Outcome<Op::Reply>,
    ) -> Reply {
        let Ok(Numbered { arguments, request }) = from_bytes::<Numbered<Op::Arguments>>(arguments)
        else {
            return Answer::Rejected(AcceptStatus::GarbageArguments);
        };
        let member = self.peer.identity.to_string();
        let (touched, keeps) = (Op::touches(&arguments), Op::keeps(&arguments));
        let files = self.files_of::<Op>(&arguments);
        let all = touched.into_iter().flatten().chain(files.iter().copied()).collect();
        let changing = self.sessions.change(request.client, &member, all);
        let outcome = changing.and_then(|changing| {
            let (session, others) = (changing.client(), changing.has_others());
            let caller = Caller { request, session, others, keeps, ..self.caller.clone() };
            if keeps.is_some() && session == 0 {
                // Nobody would know that the client has it open: its session begins soon.
                return Err(ManagerStatus::Grace);
            }
            let outcome = operation(&caller, arguments, touched);
            self.sessions.changed(self.names);
            let removed = files.iter().filter(|file| self.names.is_removed(**file));
            removed.for_each(|file| self.sessions.hub().with(|all, _| all.forget_file(*file)));
            outcome
        });
        let mut out = Encoder::new();
        encode_result(&outcome, &mut out);
        results(out.into_bytes())
    }
}

/// How often a rename is begun anew when others come between.
const ATTEMPTS: usize = 16;

/// Whether an extended attribute says who may do what.
fn is_rule(name: &[u8]) -> bool {
    xattr::class_of(name).is_ok_and(Class::is_list)
}
