package s3

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/requorum/requorum/sinks"
)

// Sink is a place in a bucket. It implements sinks.Sink.
type Sink struct {
	config    Config
	client    *s3.Client
	closeIdle func()

	probing chan struct{} // a lock that a context can end the wait for
	probed  *sinks.Abilities
	failing lastFailure // of the probe that is under way, for who waits for it
	reached atomic.Bool // the bucket is known to be there
}

var _ sinks.Sink = (*Sink)(nil)

// Open prepares the sink and speaks to nobody but, where credentials come from
// one, the machine's metadata service: the first request tells whether the
// place is there.
func Open(ctx context.Context, c Config) (*Sink, error) {
	s := &Sink{config: c, probing: make(chan struct{}, 1)}
	err := c.check()
	if err == nil {
		s.client, s.closeIdle, err = newClient(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	return s, nil
}

// String is the URL that ParseURL reads the same place from. It is kept in
// plans, which other hosts follow, and so holds all that opening it takes but
// the secrets.
func (s *Sink) String() string { return s.config.String() }

// Close releases the idle connections.
func (s *Sink) Close() error {
	s.closeIdle()
	return nil
}

// key is the object's key in the bucket.
func (s *Sink) key(name string) string {
	if s.config.Prefix == "" {
		return name
	}
	return s.config.Prefix + "/" + name
}

// name is the opposite of key.
func (s *Sink) name(key string) string {
	if s.config.Prefix == "" {
		return key
	}
	return strings.TrimPrefix(key, s.config.Prefix+"/")
}

// Stat describes an object.
func (s *Sink) Stat(ctx context.Context, name string) (sinks.Object, error) {
	if err := sinks.ValidName(name); err != nil {
		return sinks.Object{}, err
	}
	head, err := s.head(ctx, name)
	if err != nil {
		return sinks.Object{}, err
	}
	return object(name, head), nil
}

func object(name string, head *s3.HeadObjectOutput) sinks.Object {
	return sinks.Object{
		Name:        name,
		Size:        aws.ToInt64(head.ContentLength),
		ModTime:     aws.ToTime(head.LastModified),
		LockedUntil: aws.ToTime(head.ObjectLockRetainUntilDate),
	}
}
