package client

import (
	"errors"
	"slices"
	"testing"
)

// A member whose revision the others' log cannot have made is named, if most members
// show which one it is; one that lags, is new, or is read in the middle of writes is not.
func TestForeignTo(t *testing.T) {
	at := func(id uint64, revision int64, index uint64) MemberStatus {
		return MemberStatus{MemberID: id, Revision: revision, AppliedIndex: index}
	}
	away := MemberStatus{Err: errors.New("x")}
	for name, c := range map[string]struct {
		members, before []MemberStatus
		want            []int
	}{
		"alike":                             {[]MemberStatus{at(1, 221, 230), at(2, 221, 230), at(3, 221, 230)}, nil, nil},
		"restored, and caught up":           {[]MemberStatus{at(1, 221, 230), at(2, 221, 230), at(3, 321, 230)}, nil, []int{2}},
		"one is not as far as its index":    {[]MemberStatus{at(1, 221, 230), at(2, 100, 230), at(3, 221, 230)}, nil, []int{1}},
		"one lags":                          {[]MemberStatus{at(1, 221, 230), at(2, 221, 230), at(3, 30, 35)}, nil, nil},
		"one is new, after a bump":          {[]MemberStatus{at(1, 1_000_000_221, 230), at(2, 1_000_000_221, 230), at(3, 1, 3)}, nil, nil},
		"read in the middle of writes":      {[]MemberStatus{at(1, 221, 230), at(2, 250, 260), at(3, 230, 230)}, []MemberStatus{at(1, 200, 210), at(2, 200, 210), at(3, 200, 210)}, nil},
		"two that differ: nobody knows":     {[]MemberStatus{at(1, 221, 230), at(2, 321, 230)}, nil, nil},
		"and with a third that is away":     {[]MemberStatus{at(1, 221, 230), at(2, 321, 230), away}, nil, nil},
		"no three alike of five":            {[]MemberStatus{at(1, 1221, 230), at(2, 221, 230), at(3, 621, 230), at(4, 221, 230), at(5, 921, 230)}, nil, nil},
		"a restored cluster's index is low": {[]MemberStatus{at(1, 5000, 9), at(2, 5000, 9), at(3, 5001, 10)}, nil, nil},
	} {
		before := c.before
		if before == nil {
			before = c.members
		}
		if got := foreignTo(c.members, before); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := foreignTo(nil, nil); got != nil {
		t.Errorf("nobody: %v", got)
	}
}
