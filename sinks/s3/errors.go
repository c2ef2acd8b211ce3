package s3

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/requorum/requorum/sinks"
)

// operation is what was tried: the words for it, and the right that it takes.
type operation struct {
	verb   string
	rights string
}

var (
	opPut      = operation{"put", "s3:PutObject"}
	opUpload   = operation{"upload", "s3:PutObject"}
	opAbort    = operation{"abort the upload of", "s3:AbortMultipartUpload"}
	opRead     = operation{"read", "s3:GetObject"}
	opStat     = operation{"stat", "s3:GetObject (and s3:ListBucket on the bucket, without which a missing object looks like a forbidden one)"}
	opList     = operation{"list", "s3:ListBucket on the bucket"}
	opDelete   = operation{"delete", "s3:DeleteObject"}
	opReadLock = operation{"read the object lock configuration of", "s3:GetBucketObjectLockConfiguration on the bucket"}
)

// failure is an error with its cause and the next step. The SDK's own message
// repeats URLs and wrappings; of it only the server's words are shown, and all
// of it stays within reach of errors.As.
type failure struct {
	what  string // "put a/b in s3://bucket/prefix"
	cause string
	last  string // the cause of the last attempt, if the time was over before it could be repeated
	kind  error  // a sentinel of package sinks, or nil
	err   error
}

func (f *failure) Error() string {
	if f.kind != nil {
		return f.what + ": " + f.kind.Error() + f.cause
	}
	return f.what + ": " + f.cause
}

// Cause is why it failed, without what was tried and where.
func (f *failure) Cause() string {
	switch {
	case f.last != "":
		return f.last
	case f.kind != nil:
		return f.kind.Error() + f.cause
	}
	return f.cause
}

func (f *failure) Unwrap() []error {
	if f.kind != nil {
		return []error{f.kind, f.err}
	}
	return []error{f.err}
}

// explain turns an error of the SDK into one that names the object, the place,
// the cause and what to do.
func (s *Sink) explain(op operation, name string, err error) error {
	if err == nil {
		return nil
	}
	if known := new(failure); errors.As(err, &known) {
		return err
	}
	f := &failure{what: fmt.Sprintf("%s %s in %s", op.verb, name, s), err: err}
	if name == "" {
		f.what = fmt.Sprintf("%s %s", op.verb, s)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		f.cause, f.last = s.cutOff(op, name, err)
		return f
	}
	f.cause, f.kind = s.reason(op, name, err, fmt.Sprintf("for %s", s.config.Retry.For))
	return f
}

// reason is why an attempt failed; tried says how long it did.
func (s *Sink) reason(op operation, name string, err error, tried string) (cause string, kind error) {
	status, code, message := answer(err)
	if status == 0 {
		cause, _ = unanswered(err, tried)
		if s.isHostName(err) {
			cause += s.otherStyle()
		}
		return cause, nil
	}
	cause, kind = s.refused(op, name, status, code, tried, err)
	if message != "" && (status != http.StatusNotFound || kind == nil) {
		cause += fmt.Sprintf(" (the server said %s: %s)", code, message)
	}
	return cause, kind
}

// cutOff explains a request whose context ended: with what its attempts had
// failed until then.
func (s *Sink) cutOff(op operation, name string, err error) (cause, last string) {
	over := "it was cancelled"
	if errors.Is(err, context.DeadlineExceeded) {
		over = "the time for it was over"
	}
	cut := new(cutError)
	if !errors.As(err, &cut) {
		return "given up without an answer, because " + over, ""
	}
	last, kind := s.reason(op, name, cut.last, "each time")
	if kind != nil {
		last = kind.Error() + last
	}
	return "given up, because " + over + "; until then: " + last, last
}

// refused explains an answer of the server.
func (s *Sink) refused(op operation, name string, status int, code, tried string, err error) (cause string, kind error) {
	switch code {
	case "NoSuchBucket":
		cause = fmt.Sprintf("bucket %s does not exist%s: create it, or correct the URL", s.config.Bucket, s.at())
		if !s.config.PathStyle { // the server may take a part of the object's name for the bucket
			cause += s.otherStyle()
		}
		return cause, nil
	case "InvalidAccessKeyId":
		return ": the access key ID is not known" + s.at() + ": check AWS_ACCESS_KEY_ID or the profile, and that they belong to this server", sinks.ErrDenied
	case "SignatureDoesNotMatch":
		return ": the secret key does not belong to the access key ID: check AWS_SECRET_ACCESS_KEY or the profile", sinks.ErrDenied
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return ": the session token has expired: get new credentials (aws sso login, assume the role again)", sinks.ErrDenied
	case "InvalidToken", "InvalidClientTokenId":
		return ": the session token is not valid: unset AWS_SESSION_TOKEN, or set all three of one set of credentials", sinks.ErrDenied
	case "RequestTimeTooSkewed", "RequestInTheFuture":
		return "the clocks of this machine and of the server differ by more than the server accepts (15 minutes at Amazon)" + serverTime(err) + ": set the clock (chronyc, timedatectl)", nil
	case "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "InvalidRegionName":
		return s.otherRegion(err), nil
	case "InvalidStorageClass":
		return fmt.Sprintf("the server does not know storage-class=%s: correct it in the URL", s.config.StorageClass), nil
	case "InvalidObjectState":
		return "the object was moved to an archive class and must be restored before it can be read: end the lifecycle rule that moved it, and restore it with the provider's tools", nil
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch":
		return "the bytes were changed between this machine and the server, each time they were sent: look for a proxy or a faulty network card", nil
	case "NotImplemented":
		return "the server lacks something that this needs; docs/s3.md lists what", nil
	case "ObjectLockConfigurationNotFoundError", "InvalidBucketState":
		return s.noLock(), nil
	case "SecondLevelDomainForbidden": // Alibaba's
		return "the server wants the bucket in the host name: remove path-style=true from the URL", nil
	}
	switch {
	case strings.HasPrefix(strings.ToUpper(code), "KMS"):
		return "the encryption key cannot be used: check kms-key, that it is enabled and in the bucket's region, and the rights kms:GenerateDataKey and kms:Decrypt", nil
	case status == http.StatusNotFound && name != "" && op != opPut && op != opUpload:
		return hidden(err), sinks.ErrNotFound
	case status == http.StatusPreconditionFailed && (op == opPut || op == opUpload):
		return "", sinks.ErrExists
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		rights := op.rights
		if op == opPut || op == opUpload {
			if s.config.LockMode != "" {
				rights += " and s3:PutObjectRetention"
			}
			if s.config.Encryption == "aws:kms" {
				rights += " and kms:GenerateDataKey and kms:Decrypt on the key"
			}
		}
		return ": the credentials lack the right " + rights + ", or a policy of the bucket forbids it", sinks.ErrDenied
	case status >= 300 && status < 400 && status != http.StatusNotModified, code == "PermanentRedirect", code == "TemporaryRedirect":
		return s.redirected(err), nil
	case code == "SlowDown" || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return "the server is overloaded or throttles, and did so " + tried + ": try later, or spread the schedule", nil
	case status == http.StatusInsufficientStorage || code == "QuotaExceeded" || code == "XMinioStorageFull":
		return "the server has no space left", nil
	case status == http.StatusBadRequest:
		cause = "the server, or a proxy in front of it, refused it with status 400"
		switch code {
		case "", "BadRequest", "InvalidBucketName", "InvalidRequest", "InvalidURI", "MalformedXML": // the server may have taken it for another request
			cause += s.otherStyle()
		}
		if op == opPut || op == opUpload {
			cause += "; requorum cannot use one that refuses the header x-amz-checksum-crc32c or If-None-Match"
		}
		return cause, nil
	case status >= 500:
		return fmt.Sprintf("the server failed with status %d %s: see its log or status page", status, tried), nil
	}
	return fmt.Sprintf("the server refused it with status %d", status), nil
}

// unanswered explains why no answer came, and whether one may come later.
func unanswered(err error, tried string) (cause string, passes bool) {
	var dns *net.DNSError
	var timeout net.Error
	switch text := err.Error(); {
	case isCredentials(text):
		return "no usable credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (profile=… or AWS_PROFILE), or give the machine a role; the SDK said: " + innermost(err), false
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be resolved: check the endpoint, the region and the DNS server of this machine", dns.Name), dns.IsTemporary || dns.IsTimeout
	case isCertificate(err):
		return "the server's certificate is not trusted: " + innermost(err) + "; give the authority's file with ca=FILE or AWS_CA_BUNDLE, and check the host name in the endpoint", false
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks plain http, the endpoint says https: correct one of them", false
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there (connection refused): check the host and port of the endpoint and that the server runs", true
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the server does not answer in time: check the network, proxies and firewalls between: " + innermost(err), true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "the connection broke " + tried + ": check the network, proxies and firewalls between", true
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "the server cannot be reached: " + innermost(err), true
	}
	return innermost(err), false
}

func (s *Sink) at() string {
	if s.config.Endpoint == "" {
		return ""
	}
	return " at " + s.config.Endpoint
}

// otherStyle is a hint for servers that take the bucket's name only in the path, or only in
// the host name.
func (s *Sink) otherStyle() string {
	switch {
	case s.config.PathStyle:
		return "; if the server wants the bucket in the host name, remove path-style=true from the URL"
	case s.config.Endpoint != "":
		return "; if the server wants the bucket in the path, as most servers other than Amazon's do, add path-style=true to the URL"
	}
	return ""
}

// isHostName reports whether a request failed by a host name that begins with the bucket.
func (s *Sink) isHostName(err error) bool {
	var dns *net.DNSError
	var certificate x509.HostnameError
	return errors.As(err, &dns) && strings.HasPrefix(dns.Name, s.config.Bucket+".") ||
		errors.As(err, &certificate) && strings.HasPrefix(certificate.Host, s.config.Bucket+".")
}

func (s *Sink) noLock() string {
	return fmt.Sprintf("object-lock=%s is configured, and bucket %s has no object lock: make a bucket with object lock (most providers cannot add it later), or leave object-lock and retention out of the URL", s.config.LockMode, s.config.Bucket)
}

func (s *Sink) otherRegion(err error) string {
	region := cmp.Or(headers(err).Get("X-Amz-Bucket-Region"), "the right one")
	return fmt.Sprintf("the bucket lives in another region than %s: set region=%s", s.client.Options().Region, region)
}

// redirected explains a redirect, of which none is followed. Amazon's says the region.
func (s *Sink) redirected(err error) string {
	to, bad := url.Parse(headers(err).Get("Location"))
	region := headers(err).Get("X-Amz-Bucket-Region")
	if bad != nil || to.Host == "" || region != "" && region != s.client.Options().Region {
		return s.otherRegion(err)
	}
	return fmt.Sprintf("the server redirects bucket %s to %s://%s, and redirects are not followed: correct the endpoint or the region, if that is where the bucket is", s.config.Bucket, to.Scheme, to.Host)
}

// passing says whether the server may answer otherwise later. Some codes are of bytes
// that were changed on their way (the part is still in memory), and of conflicts that
// S3 asks to repeat.
func passing(status int, code string) bool {
	switch code {
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "ConditionalRequestConflict", "OperationAborted":
		return true
	}
	return status >= 500 && status != http.StatusNotImplemented && status != http.StatusInsufficientStorage ||
		status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || code == "RequestTimeout"
}

// answer is what the server said: 0 where it said nothing.
func answer(err error) (status int, code, message string) {
	var r *awshttp.ResponseError
	if errors.As(err, &r) {
		status = r.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	return status, code, message
}

// headers are those of the answer; none where nothing was answered.
func headers(err error) http.Header {
	var r *awshttp.ResponseError
	if !errors.As(err, &r) || r.Response == nil || r.Response.Response == nil {
		return nil
	}
	return r.Response.Header
}

func serverTime(err error) string {
	if date := headers(err).Get("Date"); date != "" {
		return ", the server's says " + date
	}
	return ""
}

// hidden names a delete marker over a missing object.
func hidden(err error) string {
	if headers(err).Get("X-Amz-Delete-Marker") == "true" {
		return ": a delete marker hides it; somebody deleted it in a bucket that keeps versions, and the data can still be there: remove the marker to get it back"
	}
	return ""
}

func isCertificate(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// isCredentials: the SDK has no type for finding none at all.
func isCredentials(text string) bool {
	for _, s := range []string{"failed to refresh cached credentials", "get identity: get credentials", "failed to retrieve credentials", "static credentials are empty"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// innermost is the message of the last error of the chain: the SDK and net/http
// wrap it in URLs and repetitions.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
				next = many.Unwrap()[0]
			} else {
				return err.Error()
			}
		}
		// A syscall's number says less than the operation it belongs to.
		if _, ok := next.(interface{ Timeout() bool }); ok && errors.Unwrap(next) == nil && len(err.Error()) < 200 {
			return err.Error()
		}
		err = next
	}
}
