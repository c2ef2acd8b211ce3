package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/requorum/requorum/schedule/api"
)

// port is where the agent answers. It outlives a configuration, so that one is
// replaced by another without the agent seeming to be gone.
type port struct {
	handler func(trusted bool) http.Handler
	logger  *slog.Logger
	failed  chan error // of 1: the listener's, which ends the agent

	config api.ListenConfig
	stop   context.CancelFunc
	ended  chan struct{}
}

// open listens and answers until ctx ends or close is called.
func (p *port) open(ctx context.Context, config api.ListenConfig) error {
	listener, err := api.Listen(ctx, config)
	if err != nil {
		return err
	}
	p.serve(ctx, config, listener)
	return nil
}

func (p *port) serve(ctx context.Context, config api.ListenConfig, listener net.Listener) {
	serving, stop := context.WithCancel(ctx)
	p.config, p.stop, p.ended = config, stop, make(chan struct{})
	// Who may start jobs follows from the listener that a request came by.
	handler, ended := p.handler(config.Trusted()), p.ended
	p.logger.Info("listening", "address", listener.Addr().String())
	go func() {
		defer close(ended)
		if err := api.Serve(serving, listener, handler, p.logger); err != nil {
			p.failed <- err
		}
	}()
}

// close ends what is being answered.
func (p *port) close() {
	p.stop()
	<-p.ended
}

// move listens elsewhere. With an error it goes on where it was.
func (p *port) move(ctx context.Context, config api.ListenConfig) error {
	if config == p.config {
		return nil
	}
	listener, err := api.Listen(ctx, config)
	if err == nil {
		p.close()
		p.serve(ctx, config, listener)
		return nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) || !samePort(config.Address, p.config.Address) {
		return err
	}
	// It is this agent that has the port.
	before := p.config
	p.close()
	if err := p.open(ctx, config); err != nil {
		if again := p.open(ctx, before); again != nil {
			p.ended = make(chan struct{})
			close(p.ended)
			p.failed <- fmt.Errorf("%w; and there is no way back: %w", err, again)
		}
		return err
	}
	return nil
}

func samePort(a, b string) bool {
	_, x, errX := net.SplitHostPort(a)
	_, y, errY := net.SplitHostPort(b)
	return errX == nil && errY == nil && x == y
}

// once makes a handler of each kind once.
func once(make func(readOnly bool) http.Handler) func(trusted bool) http.Handler {
	full := sync.OnceValue(func() http.Handler { return make(false) })
	readOnly := sync.OnceValue(func() http.Handler { return make(true) })
	return func(trusted bool) http.Handler {
		if trusted {
			return full()
		}
		return readOnly()
	}
}
