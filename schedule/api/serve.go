package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 5 * time.Second  // a client that says nothing
	readTimeout   = 15 * time.Second // bodies are small
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute // longer than scrapers wait between two questions
	// farewell is what requests under way have when the agent ends: less than a
	// supervisor waits.
	farewell = 3 * time.Second

	headerLimit = 16 << 10
)

// Serve answers with h on ln until ctx ends, and closes ln. Requests under way
// then have 3 seconds. It fails only where ln does. logger is told of broken
// handshakes and the like, at level Debug: anybody could cause them; it may be nil.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, logger *slog.Logger) error {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerLimit,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // those who had not ended by then are cut off
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	}
	return nil
}
