package storetest

import (
	"maps"
	"slices"
	"sync"
)

// Kind is one kind of operation in a mixed load.
type Kind string

// The kinds. Refused ones succeed when they are refused for their reason: most
// of these are entries of the log all the same.
const (
	PutSmall  Kind = "put, small"
	PutMedium Kind = "put, a few KB"
	PutLarge  Kind = "put, tens of KB"
	PutLeased Kind = "put with a lease"
	Delete    Kind = "delete"
	DeleteMap Kind = "delete a range"
	TxnThen   Kind = "transaction whose compares hold"
	TxnElse   Kind = "transaction whose compares fail"
	TxnNested Kind = "nested transaction"

	LeaseGrant     Kind = "lease grant"
	LeaseKeepAlive Kind = "lease keep-alive"
	LeaseRevoke    Kind = "lease revoke"
	LeaseExpire    Kind = "lease that expires"

	Compact         Kind = "compact"
	CompactPhysical Kind = "compact, and wait for it"

	RoleAdd        Kind = "role add"
	RoleGrant      Kind = "role grant-permission"
	RoleRevoke     Kind = "role revoke-permission"
	RoleDelete     Kind = "role delete"
	UserAdd        Kind = "user add"
	UserGrant      Kind = "user grant-role"
	UserRevoke     Kind = "user revoke-role"
	UserPassword   Kind = "user passwd"
	UserDelete     Kind = "user delete"
	AuthEnable     Kind = "auth enable"
	AuthDisable    Kind = "auth disable"
	UserAllowed    Kind = "put by a user who may"
	UserDenied     Kind = "put by a user who may not"
	NoSpaceRaise   Kind = "alarm NOSPACE raised"
	NoSpaceRefused Kind = "put refused for NOSPACE"
	NoSpaceClear   Kind = "alarm NOSPACE cleared"
	CorruptRaise   Kind = "alarm CORRUPT raised"
	CorruptRefused Kind = "put refused for CORRUPT"
	CorruptClear   Kind = "alarm CORRUPT cleared"

	LearnerAdd      Kind = "member add, learner"
	LearnerPromote  Kind = "member promote"
	MemberUpdate    Kind = "member update"
	MemberRemove    Kind = "member remove"
	VoterAdd        Kind = "member add, voter"
	LeaderMove      Kind = "move-leader"
	DowngradeEnable Kind = "downgrade enable"
	DowngradeCancel Kind = "downgrade cancel"
)

// Kinds are all that a mixed load does to a cluster of a version.
func Kinds(version string) []Kind {
	all := []Kind{
		PutSmall, PutMedium, PutLarge, PutLeased, Delete, DeleteMap, TxnThen, TxnElse, TxnNested,
		LeaseGrant, LeaseKeepAlive, LeaseRevoke, LeaseExpire, Compact, CompactPhysical,
		RoleAdd, RoleGrant, RoleRevoke, RoleDelete, UserAdd, UserGrant, UserRevoke, UserPassword, UserDelete,
		AuthEnable, AuthDisable, UserAllowed, UserDenied,
		NoSpaceRaise, NoSpaceRefused, NoSpaceClear, CorruptRaise, CorruptRefused, CorruptClear,
		LearnerAdd, LearnerPromote, MemberUpdate, MemberRemove, VoterAdd, LeaderMove,
	}
	if hasDowngrade(version) {
		all = append(all, DowngradeEnable, DowngradeCancel)
	}
	return all
}

// hasDowngrade leaves out 3.4, which has no such call, and 3.5, which has one
// that nobody may use.
func hasDowngrade(version string) bool { return version != "3.4" && version != "3.5" }

// Count is how often a kind of operation succeeded and failed. What failed may
// have happened.
type Count struct{ OK, Failed int }

// counts is safe for concurrent use.
type counts struct {
	mu     sync.Mutex
	byKind map[Kind]Count
	errors map[Kind]error // the last one of each kind
}

func (c *counts) note(kind Kind, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byKind[kind]
	if err == nil {
		n.OK++
	} else {
		n.Failed++
		c.errors[kind] = err
	}
	c.byKind[kind] = n
}

func (c *counts) copy() (map[Kind]Count, map[Kind]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byKind), maps.Clone(c.errors)
}

// missing are the kinds that never succeeded.
func (r *MixedResult) missing() []Kind {
	return slices.DeleteFunc(slices.Clone(r.kinds), func(k Kind) bool { return r.Done[k].OK > 0 })
}
