//! What strangers cost, by where they come from.
//!
//! Work for somebody who has proved nothing is charged to the account of his address, in units of about
//! the cost of refusing one small call. An account is paid off at a constant rate; one that is farther
//! behind than its burst makes the strangers of that address wait (the generic cell rate algorithm: the
//! account is the time at which all will be paid off). Who proves himself gets back what his connection
//! was charged, so that any number of honest clients can share an address, behind a translator of
//! addresses or on one host, and their accounts stay empty.
//!
//! Nobody is refused for the sake of his address, only made to wait, and never for longer than
//! [`LONGEST_WAIT_NS`], as an honest newcomer may share it with an enemy. Debts are limited too, so that
//! a few seconds after an attack its address is like any other.

use std::collections::HashMap;
use std::net::IpAddr;

/// Longest wait that is imposed at a time, in nanoseconds.
pub(super) const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// Most that an account can be behind beyond its burst, in nanoseconds.
const DEEPEST_DEBT_NS: u64 = 10_000_000_000;

/// Most connections of an address in debt that wait to be served at all. Others are closed at once,
/// which costs least.
const MOST_AT_THE_DOOR: u32 = 256;

/// Most accounts that are kept. Beyond that the half that owes least is forgotten.
const MOST_ACCOUNTS: usize = 8192;

/// Where connections come from, as far as accounts go: an IPv4 address, or the 64 bits of an IPv6
/// address that name a network, as one host has all addresses of its network at will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    V4(u32),
    V6(u64),
}

impl Origin {
    pub(super) fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V4(address) => Origin::V4(address.to_bits()),
            // The upper half fits.
            IpAddr::V6(address) => Origin::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// When everything that was charged will be paid off.
    paid_off_ns: u64,
    /// Connections that wait to be served at all.
    at_the_door: u32,
}

/// How a new connection is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Served at once.
    Open,
    /// Served after so many nanoseconds; to be followed by [`Accounts::leave_door`].
    Wait(u64),
    /// Closed: too many wait already.
    Shut,
}

/// All accounts. Times are in nanoseconds since any fixed instant.
#[derive(Debug)]
pub(super) struct Accounts {
    unit_ns: u64,
    burst_ns: u64,
    accounts: HashMap<Origin, Account>,
}

impl Accounts {
    /// Accounts that are paid off at `per_second` units, and may be `burst` units behind before anybody
    /// waits. `u32::MAX` a second is no limit.
    pub(super) fn new(per_second: u32, burst: u32) -> Accounts {
        let unit_ns = 1_000_000_000 / u64::from(per_second.max(1));
        let burst_ns = unit_ns.saturating_mul(u64::from(burst));
        Accounts { unit_ns, burst_ns, accounts: HashMap::new() }
    }

    /// Charges `units`; for how long the strangers of the address are to wait now.
    pub(super) fn charge(&mut self, origin: Origin, units: u64, now_ns: u64) -> u64 {
        let cost = units.saturating_mul(self.unit_ns);
        if cost == 0 {
            return 0;
        }
        let most = now_ns.saturating_add(self.burst_ns).saturating_add(DEEPEST_DEBT_NS);
        let account = self.account(origin, now_ns);
        let behind = account.paid_off_ns.max(now_ns).saturating_add(cost);
        account.paid_off_ns = behind.min(most);
        self.wait_ns(origin, now_ns)
    }

    /// Gives back what somebody was charged who has proved himself since.
    pub(super) fn refund(&mut self, origin: Origin, units: u64) {
        let cost = units.saturating_mul(self.unit_ns);
        if let Some(account) = self.accounts.get_mut(&origin) {
            account.paid_off_ns = account.paid_off_ns.saturating_sub(cost);
        }
    }

    /// A new connection, which costs `units`.
    pub(super) fn knock(&mut self, origin: Origin, units: u64, now_ns: u64) -> Door {
        let wait_ns = self.wait_ns(origin, now_ns);
        if wait_ns == 0 {
            self.charge(origin, units, now_ns);
            return Door::Open;
        }
        let account = self.account(origin, now_ns);
        if account.at_the_door >= MOST_AT_THE_DOOR {
            return Door::Shut;
        }
        account.at_the_door += 1;
        self.charge(origin, units, now_ns);
        Door::Wait(wait_ns)
    }

    /// A connection that has waited is served now, or gone.
    pub(super) fn leave_door(&mut self, origin: Origin) {
        if let Some(account) = self.accounts.get_mut(&origin) {
            account.at_the_door = account.at_the_door.saturating_sub(1);
        }
    }

    fn wait_ns(&self, origin: Origin, now_ns: u64) -> u64 {
        let paid_off_ns = self.accounts.get(&origin).map_or(0, |account| account.paid_off_ns);
        let free_ns = now_ns.saturating_add(self.burst_ns);
        paid_off_ns.saturating_sub(free_ns).min(LONGEST_WAIT_NS)
    }

    fn account(&mut self, origin: Origin, now_ns: u64) -> &mut Account {
        if self.accounts.len() >= MOST_ACCOUNTS && !self.accounts.contains_key(&origin) {
            self.forget(now_ns);
        }
        self.accounts.entry(origin).or_default()
    }

    /// Forgets accounts that owe nothing; if that does not halve them, those that owe least.
    fn forget(&mut self, now_ns: u64) {
        let mut debts: Vec<u64> =
            self.accounts.values().map(|account| account.paid_off_ns).collect();
        let middle = debts.len() / 2;
        let median = *debts.select_nth_unstable(middle).1;
        let keep_above = median.max(now_ns);
        self.accounts
            .retain(|_, account| account.at_the_door > 0 || account.paid_off_ns > keep_above);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HERE: Origin = Origin::V4(1);
    const THERE: Origin = Origin::V4(2);

    #[test]
    fn a_stranger_waits_when_the_burst_is_used_up_and_not_for_ever() {
        let mut accounts = Accounts::new(1000, 100);
        for _ in 0..100 {
            assert_eq!(accounts.charge(HERE, 1, 0), 0);
        }
        assert_eq!(accounts.charge(HERE, 1, 0), SECOND / 1000);
        assert_eq!(accounts.charge(THERE, 1, 0), 0, "another address");
        assert_eq!(accounts.charge(HERE, 1, SECOND), 0, "paid off by then");
        for _ in 0..1_000_000 {
            assert!(accounts.charge(HERE, 100, SECOND) <= LONGEST_WAIT_NS);
        }
        // However long the attack was, it is forgotten soon.
        assert_eq!(accounts.charge(HERE, 1, 13 * SECOND), 0);
    }

    #[test]
    fn who_proves_himself_is_given_back_what_he_was_charged() {
        let mut accounts = Accounts::new(1000, 100);
        for _ in 0..100_000 {
            assert_eq!(accounts.knock(HERE, 16, 0), Door::Open);
            assert_eq!(accounts.charge(HERE, 5, 0), 0);
            accounts.refund(HERE, 21);
        }
    }

    #[test]
    fn few_wait_at_the_door_and_the_others_are_sent_away() {
        let mut accounts = Accounts::new(10, 10);
        accounts.charge(HERE, 1000, 0);
        for _ in 0..MOST_AT_THE_DOOR {
            assert_eq!(accounts.knock(HERE, 4, 0), Door::Wait(LONGEST_WAIT_NS));
        }
        assert_eq!(accounts.knock(HERE, 4, 0), Door::Shut);
        assert_eq!(accounts.knock(THERE, 4, 0), Door::Open);
        accounts.leave_door(HERE);
        assert_eq!(accounts.knock(HERE, 4, 0), Door::Wait(LONGEST_WAIT_NS));
    }

    #[test]
    fn accounts_are_few_and_the_debtors_among_them_stay() {
        let mut accounts = Accounts::new(10, 10);
        accounts.charge(Origin::V6(0), 1000, 0);
        for number in 1..100_000 {
            accounts.charge(Origin::V6(number), 1, number);
            assert!(accounts.accounts.len() <= MOST_ACCOUNTS);
        }
        assert!(accounts.charge(Origin::V6(0), 1, 100_000) > 0, "its debt was forgotten");
    }

    #[test]
    fn no_limit_is_none() {
        let mut accounts = Accounts::new(u32::MAX, 0);
        assert_eq!(accounts.charge(HERE, u64::MAX, 0), 0);
        assert_eq!(accounts.knock(HERE, 1 << 40, 0), Door::Open);
    }

    #[test]
    fn a_host_has_one_account_by_all_its_names() {
        let of = |text: &str| Origin::of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
