package snapshot

import (
	"context"
	"io"

	"github.com/requorum/requorum/store"
)

// stream reads a member's snapshot into the upload, to its end.
func (t *taking) stream(ctx context.Context, member store.MemberStatus, up *upload) error {
	s, err := t.Client.Stream(ctx, member)
	if err != nil {
		return &memberError{err}
	}
	defer s.Close() //nolint:errcheck // reading; its end was seen or an error is on its way
	var done int64
	for {
		chunk, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return &memberError{err}
		}
		if _, err := up.codec.Write(chunk); err != nil {
			return err
		}
		done += int64(len(chunk))
		t.Progress(Progress{Phase: "stream", Done: done, Total: done + s.Remaining()})
	}
	return up.close()
}
