//! Stripe arithmetic: which bytes of a striped object are where, how many copies there are, and who stands
//! in for whom (CMU-CS-97-118 section 3.3).
//!
//! A striped object lies on the *members* of its group, `width` drives in an order. It is cut into units;
//! unit `u` belongs to column `u mod width`, and column `c` has its copies on the members `c`, `c + 1`, ...
//! (mod width), as many as there are copies. So every member is the first for one column, and when one is
//! gone its work is shared by others.
//!
//! Component objects are *sparse*: a byte of the object is at the same offset in the component of each
//! member that holds it. A member has one component, whichever columns it holds copies of, the length of the
//! whole is that of the longest component, and no offset is ever translated.

mod degraded;
mod groups;
mod shape;

pub use degraded::{Degraded, MemberState};
pub use groups::{DriveWeight, GroupError, GroupId, Groups, Move};
pub use shape::{Column, Piece, Shape, ShapeError, Strip};
