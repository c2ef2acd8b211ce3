package control_test

import (
	"testing"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// A resume is the last that a run does on a host: from then on another run may have
// it, whether the member was started or is left stopped.
func TestResumeLetsTheMemberGo(t *testing.T) {
	t.Parallel()
	m, _ := realMember(t, "3.6")
	r := newRig(t, m)
	first, second := r.client(t, run1), r.client(t, run2)
	holder := func() string {
		t.Helper()
		now, err := first.Member(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return now.Run
	}
	if _, err := first.Stop(t.Context()); err != nil || holder() != run1 {
		t.Fatalf("%q has it, %v", holder(), err)
	}
	if _, err := second.Stop(t.Context()); codeOf(err) != protocol.Held {
		t.Fatalf("held: %v", err)
	}
	for range 2 {
		if _, err := first.Resume(t.Context()); err != nil || holder() != "" {
			t.Fatalf("after the resume %q has it, %v", holder(), err)
		}
	}
	if _, err := second.Stop(t.Context()); err != nil || holder() != run2 {
		t.Fatalf("%q has it, %v", holder(), err)
	}
	// What is not one's own is not let go.
	if _, err := first.Resume(t.Context()); codeOf(err) != protocol.Held || holder() != run2 {
		t.Errorf("%q has it, %v", holder(), err)
	}
}
