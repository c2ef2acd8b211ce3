package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/requorum/requorum/sinks"
)

const defaultStall = 2 * time.Minute

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
		loaded.Region = "us-east-1" // what servers other than Amazon's sign for unless set otherwise
	}
	// LoadDefaultConfig may have replaced the transport (AWS_CA_BUNDLE).
	built, ok := loaded.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, nil, fmt.Errorf("the SDK's HTTP client is a %T, whose redirects cannot be refused", loaded.HTTPClient)
	}
	frozen := &http.Client{Transport: built.GetTransport(), CheckRedirect: refuseRedirect}
	loaded.HTTPClient = frozen
	client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		o.UsePathStyle = c.PathStyle
		o.APIOptions = append(o.APIOptions, boundAnswers, dropOperationName)
		c.setRetries(o)
		// Every put carries its sum, computed here once, in a header: sums in
		// trailers are refused by many servers.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		// A ranged read has no sum to compare with. Readers compare SHA-256.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return client, frozen.CloseIdleConnections, nil
}

// refuseRedirect makes a redirect the answer. The SDK follows 307 and 308: the other
// host's answers would count as the bucket's, and on another port it would get the
// request's signature too.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

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

// dropOperationName removes the query parameter x-id, in which the SDK repeats the name of
// the operation: some servers and proxies refuse parameters that S3 does not define.
func dropOperationName(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("DropOperationName", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
		if request, ok := in.Request.(*smithyhttp.Request); ok {
			query := request.URL.Query()
			query.Del("x-id")
			request.URL.RawQuery = query.Encode()
		}
		return next.HandleBuild(ctx, in)
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
	stall := cmp.Or(c.Stall, defaultStall)
	up, down := sinks.NewRate(c.Limits.Up), sinks.NewRate(c.Limits.Down)
	// A client of the SDK's own, because AWS_CA_BUNDLE fails with any other.
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: newLimitedConn(conn, up, down, c.Limits), limit: stall}, nil
		}
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

// stallConn breaks a connection on which nothing has moved for limit, in either
// direction: a firewall that forgot it lets both ends wait for ever. A total
// timeout would break slow links that work.
//
// A deadline that cannot be set means that the connection is closed, which the
// read or write itself reports better.
type stallConn struct {
	net.Conn
	limit time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(c.limit)) //nolint:errcheck // see above
	return c.Conn.Read(p)
}

func (c *stallConn) Write(p []byte) (int, error) {
	// The answer is awaited while the request is written: both get more time.
	c.SetDeadline(time.Now().Add(c.limit)) //nolint:errcheck // see above
	n, err := c.Conn.Write(p)
	c.SetReadDeadline(time.Now().Add(c.limit)) //nolint:errcheck // see above
	return n, err
}

// limitedConn is a connection of a sink whose connections together keep to a rate in
// each direction: requests that are repeated and all that is not an object count too.
type limitedConn struct {
	net.Conn
	up, down *sinks.Rate
}

// readAtOnce bounds what one of many connections takes ahead of the limit.
const readAtOnce = 16 << 10

func newLimitedConn(conn net.Conn, up, down *sinks.Rate, limits sinks.Limits) net.Conn {
	if up == nil && down == nil {
		return conn
	}
	if tcp, ok := conn.(interface{ SetReadBuffer(int) error }); ok && down != nil {
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
