package heartbeat

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// answerLimit is how much of an answer is read, so that the connection can be
// used again.
const answerLimit = 64 << 10

// maxRedirects within the host.
const maxRedirects = 3

// sender posts to one host. Its errors have no part of the URL.
type sender struct {
	client  *http.Client
	timeout time.Duration
}

func newSender(o Options) *sender {
	client := &http.Client{}
	if o.Client != nil {
		*client = *o.Client
	}
	client.Timeout = 0 // the context's is it
	client.CheckRedirect = checkRedirect
	return &sender{client, o.Timeout}
}

// What a redirect must not do.
var (
	errOtherHost = errors.New("it redirects to another host, which is not followed: set the URL that it leads to")
	errDowngrade = errors.New("it redirects from https to http, which is not followed")
	errMethod    = errors.New("it redirects and drops what was posted: set the URL that it leads to")
	errRedirects = errors.New("it redirects again and again")
)

func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case next.URL.Host != first.URL.Host:
		return errOtherHost
	case first.URL.Scheme == "https" && next.URL.Scheme != "https":
		return errDowngrade
	case next.Method != first.Method:
		return errMethod
	case len(via) > maxRedirects:
		return errRedirects
	}
	return nil
}

// statusError is an answer other than 2xx.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("it answers %d %s", int(e), http.StatusText(int(e)))
}

// refused tells that the receiver will never take this body.
func (e statusError) refused() bool {
	return e == http.StatusBadRequest || e == http.StatusRequestEntityTooLarge || e == http.StatusUnprocessableEntity
}

// post sends body to u and returns when the receiver answered 2xx.
func (s *sender) post(ctx context.Context, u *url.URL, contentType string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return errURL
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "requorum")
	resp, err := s.client.Do(req)
	if err != nil {
		return s.reason(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, answerLimit); err != nil && err != io.EOF {
		return s.reason(err)
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp.StatusCode)
	}
	return nil
}

// reason says why a request failed, in words of our own: the library's have the
// URL, the host or the address.
func (s *sender) reason(err error) error {
	var (
		dns         *net.DNSError
		errno       syscall.Errno
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		netErr      net.Error
	)
	for _, redirect := range []error{errOtherHost, errDowngrade, errMethod, errRedirects} {
		if errors.Is(err, redirect) {
			return redirect
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Errorf("no answer within %s", s.timeout)
	case errors.As(err, &dns):
		return errors.New("its host's name cannot be resolved")
	case errors.As(err, &certificate):
		return errors.New("its certificate is not accepted")
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return errors.New("it does not speak TLS: is https right?")
	case errors.As(err, &errno):
		return fmt.Errorf("the connection fails: %w", errno)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it closed the connection")
	default:
		return errors.New("the request fails, for a reason that would show the URL")
	}
}
