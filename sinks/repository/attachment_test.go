package repository_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

func TestAttachmentName(t *testing.T) {
	timeline := repository.TimelineID{ClusterID: 0xabc, N: 2}
	const id = "20260102T150405Z-3f9a2c"
	for _, name := range []string{"pki", "2", "k3s-token", "a-2", strings.Repeat("x", 40)} {
		for _, attempt := range []int{1, 2, 13} {
			object := repository.AttachmentName(timeline, id, attempt, name)
			require.NoError(t, sinks.ValidName(object))
			gotTimeline, gotID, gotAttempt, gotName, err := repository.ParseAttachmentName(object)
			if err != nil || gotTimeline != timeline || gotID != id || gotAttempt != attempt || gotName != name {
				t.Errorf("%s: %v %s %d %q, %v", object, gotTimeline, gotID, gotAttempt, gotName, err)
			}
		}
	}
	prefix := strings.TrimSuffix(repository.AttachmentName(timeline, id, 1, "pki"), "attachment-pki.tar.zst.age")
	for _, base := range []string{"", "attachment-.tar.zst.age", "attachment-pki.1.tar.zst.age", "attachment-pki.02.tar.zst.age", "attachment-pki.tar.zst", "attachment-PKI.tar.zst.age",
		"attachment-pki/x.tar.zst.age", "attachment--pki.tar.zst.age", "pki.tar.zst.age", "snapshot.zst", "manifest.json", "attachment-" + strings.Repeat("x", 41) + ".tar.zst.age"} {
		if _, _, _, name, err := repository.ParseAttachmentName(prefix + base); err == nil {
			t.Errorf("%s is taken for %q", base, name)
		}
	}
}
