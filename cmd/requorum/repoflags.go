package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
)

// repoFlags name the repositories and how to talk to them.
type repoFlags struct {
	urls     []string
	upload   string
	download string
	retryFor time.Duration
}

func (r *repoFlags) addFlags(f *pflag.FlagSet, several bool) {
	usage := "`URL` of the repository: file:///path, a path, or s3://bucket/prefix?region=…"
	if several {
		usage += "; may be given more than once"
	}
	f.StringArrayVarP(&r.urls, "repo", "r", nil, usage)
	f.StringVar(&r.upload, "limit-upload", "", "at most this many bytes a second to each repository, such as 50MiB")
	f.DurationVar(&r.retryFor, "retry-for", time.Minute, "how long to try again while a repository is away or throttles")
	f.StringVar(&r.download, "limit-download", "", "at most this many bytes a second from each repository, such as 50MiB")
}

// openSinks opens all repositories' sinks. The caller closes them.
func (r *repoFlags) openSinks(ctx context.Context, g *globals) ([]sinks.Sink, error) {
	if len(r.urls) == 0 {
		return nil, usageError{errors.New("no repository: give --repo URL or set REQUORUM_REPO")}
	}
	up, err := parseRate("limit-upload", r.upload)
	if err != nil {
		return nil, err
	}
	down, err := parseRate("limit-download", r.download)
	if err != nil {
		return nil, err
	}
	if r.retryFor <= 0 {
		return nil, usageError{errors.New("--retry-for: want more than 0")}
	}
	var all []sinks.Sink
	for _, u := range r.urls {
		s, err := openPlace(ctx, u, r.retryFor)
		if err != nil {
			return nil, errors.Join(err, closeSinks(all))
		}
		if up > 0 || down > 0 {
			s = sinks.Limit(s, up, down)
		}
		if slices.ContainsFunc(all, func(o sinks.Sink) bool { return o.String() == s.String() }) {
			return nil, errors.Join(usageError{fmt.Errorf("--repo %s is given twice", s)}, s.Close(), closeSinks(all))
		}
		all = append(all, sinks.Retry(s, sinks.RetryPolicy{For: r.retryFor, Logger: g.logger()}))
	}
	return all, nil
}

// openSink opens the one repository of a command that takes one.
func (r *repoFlags) openSink(ctx context.Context, g *globals) (sinks.Sink, error) {
	if len(r.urls) > 1 {
		return nil, usageError{fmt.Errorf("%d repositories given; this command takes one --repo", len(r.urls))}
	}
	all, err := r.openSinks(ctx, g)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// openRepository opens the one repository of a command that reads one. The
// caller closes its sink.
func (r *repoFlags) openRepository(ctx context.Context, g *globals) (*repository.Repository, error) {
	sink, err := r.openSink(ctx, g)
	if err != nil {
		return nil, err
	}
	repo, err := repository.Open(ctx, sink)
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	if damage := repo.Damage(); damage != nil {
		g.note("%v; the backups are not affected", damage)
	}
	return repo, nil
}

// placeNames are URLs of repositories in the one way in which their places are written.
func placeNames(urls []string) (all []string) {
	for _, u := range urls {
		all = append(all, place.Name(u))
	}
	return all
}

// openPlace opens the sink of one --repo; a URL that names no place is wrong usage.
func openPlace(ctx context.Context, raw string, retryFor time.Duration) (sinks.Sink, error) {
	s, err := place.Open(ctx, raw, retryFor)
	if errors.Is(err, place.ErrURL) {
		return nil, usageError{fmt.Errorf("--repo: %w", err)}
	}
	return s, err
}

// parseRate reads bytes a second; 0 is no limit.
func parseRate(option, value string) (int64, error) {
	if value == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(strings.TrimSuffix(value, "/s"))
	if err != nil || n == 0 || n > 1<<50 {
		return 0, usageError{fmt.Errorf("--%s %s: want bytes a second, such as 50MiB", option, value)}
	}
	return int64(n), nil
}

func closeSinks(all []sinks.Sink) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
