package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/requorum/requorum/sinks"
)

// newClient makes the SDK's client of a place. It speaks to nobody yet.
// closeIdle releases its idle connections.
func newClient(ctx context.Context, c Config) (client *s3.Client, closeIdle func(), err error) {
	transport, err := newTransport(c)
	if err != nil {
		return nil, nil, err
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(transport),
		// The SDK would write to standard error, such as of a machine without
		// metadata; what matters of it comes as an error.
		config.WithLogger(logging.Nop{}),
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	if c.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(c.Credentials))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("AWS configuration (environment and shared files): %w", err)
	}
	if loaded.Region == "" {
		if c.Endpoint == "" {
			return nil, nil, fmt.Errorf("no region is known for bucket %s: add region=… to the URL or set AWS_REGION", c.Bucket)
		}
		loaded.Region = "us-east-1" // what servers other than Amazon's sign for unless told otherwise
	}
	// LoadDefaultConfig may have replaced the transport (AWS_CA_BUNDLE).
	if b, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
		loaded.HTTPClient = b.Freeze()
	}
	frozen, ok := loaded.HTTPClient.(*http.Client)
	if !ok {
		return nil, nil, fmt.Errorf("the SDK's HTTP client is a %T, whose redirects cannot be refused", loaded.HTTPClient)
	}
	// The SDK follows 307 and 308: the other host's answers would count as the
	// bucket's, and on another port it would get the request's signature too.
	frozen.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		o.UsePathStyle = c.PathStyle
		o.APIOptions = append(o.APIOptions, boundAnswers, renewPatience)
		c.setRetries(o)
		// Every put carries its sum, computed here once, in a header: sums in
		// trailers are refused by many servers.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		// A ranged read has no sum to compare with. Readers compare SHA-256.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return client, frozen.CloseIdleConnections, nil
}

// answerLimit bounds, in bytes, every answer but an object's: a page of a listing is
// the largest, of a thousand keys.
const answerLimit = 8 * mebibyte

// boundAnswers ends an answer that the SDK would read whole into memory at
// answerLimit. What is read of an object is bounded by the range that was asked for.
func boundAnswers(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("BoundAnswers", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		answer, ok := out.RawResponse.(*smithyhttp.Response)
		if !ok || answer.Body == nil || awsmiddleware.GetOperationName(ctx) == "GetObject" && answer.StatusCode < http.StatusMultipleChoices {
			return out, metadata, err
		}
		answer.Body = http.MaxBytesReader(nil, answer.Body, answerLimit)
		return out, metadata, err
	}), middleware.After)
}

func newTransport(c Config) (*awshttp.BuildableClient, error) {
	var authorities *x509.CertPool
	if c.CAFile != "" {
		pem, err := sinks.ReadFile(c.CAFile, sinks.SmallFile)
		if err != nil {
			return nil, fmt.Errorf("the file of authorities that ca names: %w", err)
		}
		authorities = x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s, which ca names, holds no certificate in PEM form", c.CAFile)
		}
	}
	stall := c.stall()
	up, down := sinks.NewRate(c.Limits.Up), sinks.NewRate(c.Limits.Down)
	// A client of the SDK's own, because AWS_CA_BUNDLE fails with any other.
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		dial := t.DialContext
		if c.dialer != nil {
			dial = c.dialer.DialContext
		}
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialing, cancel := context.WithTimeout(ctx, stall)
			defer cancel()
			conn, err := dial(dialing, network, address)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				// Not the caller's time is over, as that error would say.
				err = &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
			}
			if err != nil {
				return nil, err
			}
			// What our own limits wait for is no silence of the server.
			return newLimitedConn(conn, &stallConn{Conn: conn, usual: stall, limit: stall}, up, down, c.Limits), nil
		}
		// One request for each connection: the silence of a connection is that of its
		// request. Amazon speaks no HTTP/2 here either.
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.MaxResponseHeaderBytes = progress
		t.DisableCompression = true // bytes are wanted as they are stored
		t.MaxIdleConnsPerHost = 16
		if authorities != nil {
			if t.TLSClientConfig == nil {
				t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
			}
			t.TLSClientConfig.RootCAs = authorities
		}
	}), nil
}

// stall is how long an attempt may wait for the server: half of what Retry allows, so
// that one that was lost on the way is made again, and never so short that a busy
// server is taken for a silent one.
func (c Config) stall() time.Duration {
	return min(max(c.Retry.For/2, 10*time.Second), c.longestStall())
}

// longestStall is for requests that a server may have to work for.
func (c Config) longestStall() time.Duration { return cmp.Or(c.Stall, 2*time.Minute) }

// stallConn breaks a connection whose other end was waited for so long as limit since
// the request began or progress bytes moved: a firewall that forgot a connection lets
// both ends wait for ever, and a server can send a byte now and then. Only waiting
// counts, and not the time between two calls. A total timeout would break slow links
// that work.
//
// A deadline that cannot be set means that the connection is closed, which the
// read or write itself tells better.
type stallConn struct {
	net.Conn
	usual time.Duration // the limit of most requests

	mu         sync.Mutex
	limit      time.Duration
	sent, came patience
	since      time.Time // when the wait for an answer began
}

// patience is what was waited for one direction, and what moved meanwhile.
type patience struct {
	waited time.Duration
	moved  int
}

func (p *patience) spend(waited time.Duration, moved int) {
	p.waited, p.moved = p.waited+waited, p.moved+moved
	if p.moved >= progress {
		*p = patience{}
	}
}

// renew is for a new attempt, which may have waited on another connection already, and
// may wait for atLeast.
func (c *stallConn) renew(waited, atLeast time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = max(c.usual, atLeast)
	c.sent, c.came = patience{}, patience{waited: waited}
	c.awaitAnswer()
}

// awaitAnswer begins to wait for the answer, also of a Read that is under way.
func (c *stallConn) awaitAnswer() {
	c.since = time.Now()
	c.SetReadDeadline(c.since.Add(c.limit - c.came.waited)) //nolint:errcheck // see above
}

func (c *stallConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.awaitAnswer()
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came.spend(time.Since(c.since), n)
	return n, err
}

// Write gives the answer, for which a Read waits meanwhile, new time as well.
func (c *stallConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	began := time.Now()
	c.SetWriteDeadline(began.Add(c.limit - c.sent.waited)) //nolint:errcheck // see above
	c.awaitAnswer()
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.spend(time.Since(began), n)
	c.awaitAnswer()
	return n, err
}

// longKey is of the least time.Duration that an attempt with this context waits for.
type longKey struct{}

// renewPatience tells a connection that an attempt begins on it. An attempt has several
// where net/http takes a request that got no answer from one idle connection to the next.
func renewPatience(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("RenewPatience", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		var began time.Time
		atLeast, _ := ctx.Value(longKey{}).(time.Duration)
		return next.HandleFinalize(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			if began.IsZero() {
				began = time.Now()
			}
			for conn := got.Conn; ; {
				switch c := conn.(type) {
				case *tls.Conn:
					conn = c.NetConn()
				case *limitedConn:
					conn = c.Conn
				case *stallConn:
					c.renew(time.Since(began), atLeast)
					return
				default:
					return
				}
			}
		}}), in)
	}), (*retry.Attempt)(nil).ID(), middleware.After)
}

// limitedConn is a connection of a sink whose connections together keep to a rate in
// each direction: requests that are repeated and all that is not an object count too.
type limitedConn struct {
	net.Conn
	up, down *sinks.Rate
}

// readAtOnce bounds what one of many connections takes ahead of the limit.
const readAtOnce = 16 << 10

// newLimitedConn limits conn, which wraps raw.
func newLimitedConn(raw, conn net.Conn, up, down *sinks.Rate, limits sinks.Limits) net.Conn {
	if up == nil && down == nil {
		return conn
	}
	if tcp, ok := raw.(interface{ SetReadBuffer(int) error }); ok && down != nil {
		// What the kernel takes in before it is read is beyond the limit.
		_ = tcp.SetReadBuffer(int(min(max(limits.Down/128, readAtOnce), 4<<20))) // a larger one does no harm
	}
	return &limitedConn{conn, up, down}
}

// Write waits before each part: for moments, so that a connection that is closed
// meanwhile need not end it.
func (c *limitedConn) Write(p []byte) (written int, err error) {
	for {
		part := p[written : written+c.up.Most(len(p)-written)]
		if err := c.up.Wait(context.Background(), len(part)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(part)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Read waits after reading: only then is it known how much there was.
func (c *limitedConn) Read(p []byte) (int, error) {
	if c.down != nil {
		p = p[:min(c.down.Most(len(p)), readAtOnce)]
	}
	n, err := c.Conn.Read(p)
	if waited := c.down.Wait(context.Background(), n); waited != nil && err == nil {
		err = waited
	}
	return n, err
}
