package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/rights"
)

// The supported minor versions of Kubernetes 1 (docs/doctor.md): newest is the version whose
// behaviour the controllers have, and that is tested.
const (
	oldestMinor, newestMinor = 34, 36
)

// soon is how long before its expiry a certificate gets a warning.
const soon = 7 * 24 * time.Hour

// ServerChecks are the names of the checks of an API server that answers.
var ServerChecks = []string{CheckTLS, CheckIdentity, CheckVersion, CheckClockServer, CheckManager}

// Kubeconfig is the result of reading the kubeconfig.
type Kubeconfig struct {
	// From is its source: a file, or the pod's service account.
	From string
	// Context is the current context; empty: none.
	Context string
	// Host is the address of the API server.
	Host string
	// Err is why it cannot be used.
	Err error
	// Usual is the file that kubectl reads by default, if it exists and was not named.
	Usual string
}

// Finding checks the kubeconfig.
func (k Kubeconfig) Finding() Finding {
	switch {
	case k.Err == nil && k.Context != "":
		return found(CheckKubeconfig, OK, "%s, context %s, names %s", k.From, k.Context, k.Host)
	case k.Err == nil:
		return found(CheckKubeconfig, OK, "%s names %s", k.From, k.Host)
	case k.From == "" && k.Usual != "":
		return found(CheckKubeconfig, Failed, "%v", k.Err).so("kubectl's is --kubeconfig=%s", k.Usual)
	case k.From == "":
		return found(CheckKubeconfig, Failed, "%v", k.Err)
	case errors.Is(k.Err, fs.ErrNotExist):
		return found(CheckKubeconfig, Failed, "%s: %v", k.From, k.Err).so("name a file that is there with --kubeconfig or KUBECONFIG")
	case errors.Is(k.Err, fs.ErrPermission):
		return found(CheckKubeconfig, Failed, "%s: %v", k.From, k.Err).so("let this user read it")
	case clientcmd.IsEmptyConfig(k.Err):
		return found(CheckKubeconfig, Failed, "%s has no current context, or names no cluster", k.From).
			so("choose one: kubectl config get-contexts, kubectl config use-context NAME")
	case clientcmd.IsContextNotFound(k.Err):
		return found(CheckKubeconfig, Failed, "%s: %v", k.From, k.Err).so("choose one that is there: kubectl config get-contexts, kubectl config use-context NAME")
	}
	return found(CheckKubeconfig, Failed, "%s: %v", k.From, k.Err).so("correct the file, or name another with --kubeconfig or KUBECONFIG")
}

// NoClient are the findings if the configuration is not valid for a client.
func NoClient(err error) []Finding {
	f := found(CheckAPIServer, Failed, "the kubeconfig makes no client: %v", err).so("correct it: certificates and keys must be there, and go together")
	return append([]Finding{f}, Unchecked("the API server is not asked", ServerChecks...)...)
}

// Reach is the result of a first request to the API server, which every authenticated user
// may make.
type Reach struct {
	Host string
	// Err is why there is no response; Code is its status code, and Took how long it took.
	Err  error
	Code int
	Took time.Duration
	// Plain: the connection has no TLS. Unverified: the certificate is not verified. Chain is
	// the certificate, with those up to its authority.
	Plain, Unverified bool
	Chain             []*x509.Certificate
}

// Findings checks the API server and its certificate.
func (r Reach) Findings(now time.Time) []Finding {
	return []Finding{r.answers(), r.tls(now)}
}

// Well is whether further requests make sense.
func (r Reach) Well() bool { return r.Err == nil && r.Code < 500 && r.Code != 401 }

func (r Reach) answers() Finding {
	switch {
	case r.Err != nil && r.distrusted():
		return found(CheckAPIServer, NotChecked, "%s is not trusted", r.Host)
	case r.Err != nil:
		f := found(CheckAPIServer, Failed, "%s does not answer: %v", r.Host, r.Err)
		var name *net.DNSError
		if errors.As(r.Err, &name) {
			return f.so("correct the server's name in the kubeconfig, or the DNS of this machine")
		}
		return f.so("check the address in the kubeconfig, that the API server runs, and that nothing between lets no one through")
	case r.Code >= 500:
		return found(CheckAPIServer, Failed, "%s answers with code %d", r.Host, r.Code).so("look at its log, and at /readyz?verbose")
	}
	return found(CheckAPIServer, OK, "%s answers within %v", r.Host, r.Took.Round(time.Millisecond))
}

// distrusted is whether the certificate is the reason for the error.
func (r Reach) distrusted() bool {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	return errors.As(r.Err, &unknown) || errors.As(r.Err, &invalid) || errors.As(r.Err, &name) || errors.As(r.Err, &record)
}

func (r Reach) tls(now time.Time) Finding {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	switch {
	case errors.As(r.Err, &unknown):
		return found(CheckTLS, Failed, "the certificate of %s is not of an authority that the kubeconfig trusts: %v", r.Host, r.Err).
			so("put the cluster's authority into the kubeconfig (certificate-authority)")
	case errors.As(r.Err, &invalid) && invalid.Reason == x509.Expired:
		return found(CheckTLS, Failed, "the certificate of %s has expired, or is not valid yet: %v", r.Host, r.Err).so("renew it (kubeadm certs renew apiserver), and check the clocks")
	case errors.As(r.Err, &name):
		return found(CheckTLS, Failed, "the certificate of %s is for other names: %v", r.Host, r.Err).
			so("use one of them in the kubeconfig, or set its tls-server-name")
	case r.Err != nil && r.distrusted():
		return found(CheckTLS, Failed, "%s does not speak TLS as it should: %v", r.Host, r.Err).so("check the address and its port in the kubeconfig")
	case r.Err != nil:
		return found(CheckTLS, NotChecked, "the API server does not answer")
	case r.Plain:
		return found(CheckTLS, Warning, "%s is asked without TLS: credentials and Secrets cross the network as they are", r.Host).so("name an https:// address in the kubeconfig")
	case r.Unverified:
		return found(CheckTLS, Warning, "the certificate of %s is not looked at (insecure-skip-tls-verify): another server may answer for it", r.Host).
			so("put the cluster's authority into the kubeconfig (certificate-authority) instead")
	case len(r.Chain) == 0:
		return found(CheckTLS, NotChecked, "the connection does not show the certificate")
	case r.Chain[0].NotAfter.Sub(now) < soon:
		return found(CheckTLS, Warning, "the certificate of %s is trusted, and ends at %s", r.Host, day(r.Chain[0].NotAfter)).so("renew it before that (kubeadm certs renew apiserver)")
	}
	return found(CheckTLS, OK, "the certificate of %s is trusted, until %s", r.Host, day(r.Chain[0].NotAfter))
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// Identity is the user as which the API server authenticates this client.
type Identity struct {
	// Code is the status code of the first request.
	Code int
	// Name is the user; empty: the API server does not tell, because of Err.
	Name string
	Err  error
	// Ends is when the client certificate of the kubeconfig expires; zero: there is none.
	Ends time.Time
}

// Finding checks the credentials.
func (i Identity) Finding(now time.Time) Finding {
	renew := "renew it (kubeadm certs renew, or what made it)"
	switch {
	case i.Code == 401 && !i.Ends.IsZero() && now.After(i.Ends):
		return found(CheckIdentity, Failed, "the client certificate of the kubeconfig has ended at %s", day(i.Ends)).so("%s", renew)
	case i.Code == 401:
		return found(CheckIdentity, Failed, "the API server does not know the credentials of the kubeconfig").
			so("check its user: a token may have ended, and a certificate must be of an authority that the API server trusts")
	case i.Code == 403 && i.Err != nil:
		return found(CheckIdentity, Failed, "the API server refuses every request: %v", i.Err).
			so("name a user with credentials in the kubeconfig's context, and give it the roles that millrace rbac prints; --as takes the right to impersonate")
	case i.Err != nil:
		return found(CheckIdentity, NotChecked, "the API server does not tell who we are: %v", i.Err)
	case !i.Ends.IsZero() && i.Ends.Sub(now) < soon:
		return found(CheckIdentity, Warning, "the API server knows us as %s, by a certificate that ends at %s", i.Name, day(i.Ends)).so("%s", renew)
	case i.Code == 403:
		return found(CheckIdentity, Failed, "the API server knows us as %s, and lets that user do nothing", i.Name).so("give the user the roles that millrace rbac prints")
	}
	return found(CheckIdentity, OK, "the API server knows us as %s", i.Name)
}

// ServerVersion is the API server's version.
type ServerVersion struct {
	Major, Minor string
	GitVersion   string
}

// number is the minor version of Kubernetes 1; ok is false if it is not usable, such as in an
// API server that was built without a version.
func (v ServerVersion) number() (minor int, ok bool) {
	major, minorText := v.Major, strings.TrimRight(v.Minor, "+")
	if major == "" || minorText == "" {
		if _, err := fmt.Sscanf(v.GitVersion, "v1.%d", &minor); err != nil {
			return 0, false
		}
		return minor, true
	}
	minor, err := strconv.Atoi(minorText)
	return minor, err == nil && major == "1"
}

// Constrains is whether the API server has constrained impersonation by default.
func (v ServerVersion) Constrains() bool {
	minor, ok := v.number()
	return !ok || minor >= rights.ConstrainedSince
}

// Finding checks the version against the supported ones.
func (v ServerVersion) Finding() Finding {
	minor, ok := v.number()
	switch {
	case !ok:
		return found(CheckVersion, NotChecked, "the API server does not say which version it is (%q)", v.GitVersion)
	case minor < oldestMinor:
		return found(CheckVersion, Failed, "the API server is Kubernetes %s, and the oldest that is supported is 1.%d", v.GitVersion, oldestMinor).
			so("upgrade the cluster to 1.%d or later", oldestMinor)
	case minor > newestMinor:
		return found(CheckVersion, Warning, "the API server is Kubernetes %s, which is newer than what Millrace was tested with, 1.%d", v.GitVersion, newestMinor).
			so("look for a newer Millrace, and begin with --shadow='*'")
	case minor < newestMinor:
		return found(CheckVersion, Warning, "the API server is Kubernetes %s: the controllers decide as those of 1.%d do, with which Kubernetes' own tests are run", v.GitVersion, newestMinor).
			so("begin with --shadow='*', and give the writer the roles of millrace rbac --impersonation=classic")
	}
	return found(CheckVersion, OK, "the API server is Kubernetes %s", v.GitVersion)
}
