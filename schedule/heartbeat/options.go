package heartbeat

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Defaults of Options.
const (
	// DefaultEvery is what services of this sort expect at most often.
	DefaultEvery = time.Minute
	// DefaultTimeout outlasts a lost packet and a slow name server.
	DefaultTimeout = 10 * time.Second
)

// Options say where to send to.
type Options struct {
	// URL is http or https; a secret.
	URL string
	// Every is the time between two pings; of no meaning to a webhook.
	Every time.Duration
	// Timeout bounds one request.
	Timeout time.Duration
	// Client may be nil: the default one then. Its Timeout and CheckRedirect are
	// not used.
	Client *http.Client
	// Logger is told of what could not be sent, once until it can be again; may
	// be nil.
	Logger *slog.Logger
}

// String does not show the URL.
func (o Options) String() string {
	return fmt.Sprintf("{URL:… Every:%s Timeout:%s}", o.Every, o.Timeout)
}

// GoString does not show the URL.
func (o Options) GoString() string { return "heartbeat.Options" + o.String() }

// LogValue does not show the URL.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// check fills in the defaults and reads the URL. what names the configuration's
// section.
func (o Options) check(what string) (Options, *url.URL, error) {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Every < 0 || o.Timeout < 0 {
		return o, nil, fmt.Errorf("%s: every and timeout must be positive", what)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	// Not the parser's own error, which has the URL.
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return o, nil, fmt.Errorf("%s: %w", what, errURL)
	}
	return o, u, nil
}

var errURL = errors.New("its URL (which is not shown, since it is a secret) is none: write it as https://HOST/PATH")
