package client

import (
	"strings"
	"testing"
)

func TestMemberStatus_Warnings(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		size, used, quota int64
		want              string // "" is none
	}{
		{gib, gib, 2 * gib, ""},
		{7 * gib, 6 * gib, 8 * gib, "7.0 GiB of its quota of 8.0 GiB"},
		{7 * gib, 3 * gib, 8 * gib, "defragment: more than half of it is free"},
		{gib, gib, 0, ""},
		{2*gib - 1, gib, 0, "of the default quota"},
		{7 * gib, gib, 0, ""}, // it is larger than the default: the quota was raised, nobody knows to what
		{7 * gib, gib, -1, ""},
	} {
		got := MemberStatus{DBSize: c.size, DBSizeInUse: c.used, DBSizeQuota: c.quota, Errors: []string{"NOSPACE"}}.Warnings()
		if got[0] != "NOSPACE" || len(got) > 2 || (len(got) == 2) != (c.want != "") || !strings.Contains(got[len(got)-1], c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
