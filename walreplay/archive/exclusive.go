package archive

import (
	"context"
	"fmt"
)

// SharedError says that the repository's place does not decide between several
// writers of one name, and that nobody said that there is one only.
type SharedError struct{ Place string }

func (e *SharedError) Error() string {
	return fmt.Sprintf("%s stores a second object under a name that is taken (it ignores If-None-Match): of two archivers one would overwrite the other's log, unseen. Use a server with conditional puts, or run a single archiver for this repository and say so with --single-writer", e.Place)
}

// checkWriters refuses a place that several archivers cannot share.
func (s *session) checkWriters(ctx context.Context) error {
	if s.SingleWriter || s.a.exclusive {
		return nil
	}
	abilities, err := s.a.sink.Abilities(ctx)
	if err != nil {
		return err
	}
	if !abilities.ExclusiveCreate {
		return &SharedError{s.a.sink.String()}
	}
	s.a.exclusive = true
	return nil
}
