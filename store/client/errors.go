package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// EndpointError is a call that failed at one endpoint: where, what was asked,
// the cause, and what to do about it.
type EndpointError struct {
	Endpoint string
	Doing    string // "asking for status"
	Cause    string // in words; empty when Err says it all
	NextStep string // empty when nothing better than the cause is known
	Err      error  // errors.Is and errors.As look at this
}

func (e *EndpointError) Error() string {
	text := fmt.Sprintf("endpoint %s: %s: ", e.Endpoint, e.Doing)
	if e.Cause != "" {
		text += e.Cause
	} else {
		text += e.Err.Error()
	}
	if e.NextStep != "" {
		text += "; " + e.NextStep
	}
	return text
}

// Unwrap is the error as the transport or the member gave it.
func (e *EndpointError) Unwrap() error { return e.Err }

// Errors of the client side, wrapped with the endpoint.
var (
	// ErrLogin says that the user name or the password is wrong or missing.
	ErrLogin = errors.New("login refused")
	// ErrPermission says that the user is known and may not do this.
	ErrPermission = errors.New("permission denied")
	// ErrUnreachable says that no connection could be made.
	ErrUnreachable = errors.New("no connection")
	// ErrTimeout says that no answer came within the bound of the call.
	ErrTimeout = errors.New("no answer in time")
)

// explain turns the error of a call into an EndpointError; nil stays nil.
func (e *endpoint) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var already *EndpointError
	if errors.As(err, &already) {
		return err
	}
	out := &EndpointError{Endpoint: e.name, Doing: doing, Err: err}
	code := status.Code(err)
	var etcdErr rpctypes.EtcdError
	if errors.As(err, &etcdErr) {
		code = etcdErr.Code()
	}
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		out.fail(ErrLogin, "the user name or the password is wrong", "check --user and --password (ETCDCTL_USER, ETCDCTL_PASSWORD)")
	case expiredToken(err):
		out.fail(ErrLogin, "the cluster has authentication on and the call carried no valid login", "give --user and --password, or a client certificate that names a user")
	case isPermissionDenied(err, code):
		out.fail(ErrPermission, "permission denied", "this call needs a user with the root role (etcd has no smaller one for it): etcdctl user grant-role USER root")
	case code == codes.Canceled || errors.Is(err, context.Canceled):
		out.fail(context.Canceled, "cancelled", "")
	case code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		out.Err = fmt.Errorf("%w: %w", ErrTimeout, joinErrors(err, context.DeadlineExceeded))
		if !out.explainConnection(e.failures.get(), err.Error()) {
			out.Cause, out.NextStep = "no answer in time", "check that the member runs and has quorum, or raise --command-timeout"
		}
	case code == codes.Unavailable && !isEtcdAnswer(err):
		failure := e.failures.get()
		out.Err = fmt.Errorf("%w: %w", ErrUnreachable, joinErrors(err, failure))
		out.explainConnection(failure, err.Error())
	}
	return out
}

// isPermissionDenied also knows the raw error that 3.5 answers of maintenance calls.
func isPermissionDenied(err error, code codes.Code) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || code == codes.PermissionDenied ||
		code == codes.Unknown && strings.HasSuffix(rpctypes.ErrorDesc(err), "auth: permission denied")
}

// fail puts a sentinel in front of the error, and words to it.
func (e *EndpointError) fail(sentinel error, cause, next string) {
	e.Err = fmt.Errorf("%w: %w", sentinel, e.Err)
	e.Cause, e.NextStep = cause, next
}

func joinErrors(err, more error) error {
	if more == nil || errors.Is(err, more) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, more)
}

// isEtcdAnswer reports whether the member itself answered with Unavailable ("no
// leader", "request timed out"), not the transport.
func isEtcdAnswer(err error) bool {
	return strings.HasPrefix(rpctypes.ErrorDesc(err), "etcdserver:")
}

// explainConnection finds words for a connection that could not be made, and
// reports whether it knew the cause: by the type of the dialler's or the
// handshake's own error, or by the text of what only gRPC saw.
func (e *EndpointError) explainConnection(failure error, text string) bool {
	var handshake *handshakeError
	switch {
	case errors.As(failure, &handshake):
		e.Cause, e.NextStep = handshakeWords(handshake.err, handshake.cert)
	case failure != nil:
		e.Cause, e.NextStep = dialWords(failure)
	case strings.Contains(text, "error reading server preface"), strings.Contains(text, "connection reset by peer"), strings.Contains(text, "broken pipe"):
		e.Cause, e.NextStep = "connected, but what answers there does not speak plain gRPC", "name the client URL, not the peer's; if the member uses TLS, write the endpoint as https:// (and give --cacert); a member that starts, or finds no quorum, serves nobody yet"
	default:
		return false
	}
	return true
}

func handshakeWords(err error, cert string) (cause, next string) {
	var (
		unknownCA x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		record    tls.RecordHeaderError
	)
	text := err.Error()
	switch {
	case strings.Contains(text, "tls: certificate required") && cert != "": // ours was not even sent
		return "the server does not accept the client certificate " + cert + ": none of the CAs that it trusts has signed it", "use one that is signed by the server's trusted CA"
	case strings.Contains(text, "tls: certificate required"):
		return "the server wants a client certificate", "give --cert and --key, signed by a CA that the server trusts"
	case strings.HasPrefix(text, "remote error: tls: ") && (strings.Contains(text, "certificate")):
		return "the server does not accept the client certificate " + cert + " (" + text + ")", "use one that is valid today and signed by the server's trusted CA"
	case errors.As(err, &record), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "what answers there does not speak TLS", "write the endpoint as http://, or turn on TLS in the member"
	case errors.As(err, &unknownCA):
		return "the server's certificate is signed by an unknown authority", "give the CA that signed it with --cacert (ETCDCTL_CACERT)"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired or is not yet valid: " + invalid.Detail, "renew it, and compare the clocks of both machines"
	case errors.As(err, &host):
		return "the server's certificate is for other names: " + host.Error(), "write --endpoints with a name or an address that the certificate carries"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "connected, and the TLS handshake took too long", "check that a member listens there"
	default:
		return "TLS handshake: " + text, "check the certificates of both sides"
	}
}

func dialWords(err error) (cause, next string) {
	var (
		dns  *net.DNSError
		path *fs.PathError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens there", "check the address and that etcd runs"
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be looked up: %s", dns.Name, dns.Err), "check the address and the machine's DNS"
	case errors.As(err, &path):
		return err.Error(), "check the path and who may read it"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to that host", "check the address and the network"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "connecting took too long", "check the address and firewalls, or raise --dial-timeout"
	default:
		return err.Error(), ""
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
