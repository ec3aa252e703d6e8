package authority_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/writer/apply/authority"
)

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// ca is a signer's certificate and key.
type ca struct {
	key              crypto.Signer
	own              *x509.Certificate
	certificate, pem []byte // the certificate, and the key in PEM
}

func newCA(t *testing.T, name string, until time.Time) ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return ca{key, own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
}

// files are the paths to which the certificate and the key are written.
func files(t *testing.T, c ca) authority.Files {
	t.Helper()
	dir := t.TempDir()
	f := authority.Files{Certificate: filepath.Join(dir, "ca.crt"), Key: filepath.Join(dir, "ca.key")}
	write(t, f.Certificate, c.certificate)
	write(t, f.Key, c.pem)
	return f
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, f authority.Files, longest time.Duration) *authority.Authority {
	t.Helper()
	all := map[string]authority.Files{}
	for _, signer := range csr.Signers() {
		all[signer] = f
	}
	a, err := authority.New(all, longest)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var requester, _ = rsa.GenerateKey(rand.Reader, 2048)

// request returns an approved request for a signer, as changed by change.
func request(t *testing.T, signer string, change func(*x509.CertificateRequest), usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, requester)
	if err != nil {
		t.Fatal(err)
	}
	r := &certificatesv1.CertificateSigningRequest{}
	r.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Usages: usages, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
	return r
}

func read(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		t.Fatalf("the text is no single certificate: %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A certificate has what was requested, for the requested usages, and nothing more: it is no CA,
// whatever extensions the request has.
func TestCertificates(t *testing.T) {
	signer := newCA(t, "ca", now.Add(10*365*24*time.Hour))
	a := opened(t, files(t, signer), 0)
	everything := func(r *x509.CertificateRequest) {
		r.Subject = pkix.Name{CommonName: "jane", Organization: []string{"a", "b"}, Country: []string{"CH"}}
		r.DNSNames, r.IPAddresses, r.EmailAddresses = []string{"n1", "n1.example.com"}, []net.IP{net.IPv4(10, 0, 0, 1)}, []string{"a@example.com"}
		r.URIs = []*url.URL{{Scheme: "spiffe", Host: "n1"}}
		authorityOf, _ := asn1.Marshal(struct{ CA bool }{true})
		r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: authorityOf}, {Id: asn1.ObjectIdentifier{1, 2, 3}, Value: []byte("x")}}
	}
	text, err := a.Certify(request(t, csr.LegacyUnknown, everything, "client auth", "server auth", "digital signature", "cert sign"), now)
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, text)
	if err := c.CheckSignatureFrom(signer.own); err != nil {
		t.Errorf("the certificate is not signed by the signer: %v", err)
	}
	if key, ok := c.PublicKey.(*rsa.PublicKey); !ok || !key.Equal(requester.Public()) {
		t.Error("the certificate has another key than the request")
	}
	if c.Subject.String() != "CN=jane,O=a+O=b,C=CH" || !slices.Equal(c.DNSNames, []string{"n1", "n1.example.com"}) || len(c.IPAddresses) != 1 || len(c.EmailAddresses) != 1 || len(c.URIs) != 1 {
		t.Errorf("the certificate has the subject %s and the names %v %v %v %v, want those of the request", c.Subject, c.DNSNames, c.IPAddresses, c.EmailAddresses, c.URIs)
	}
	if c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the certificate has the usages %v and %v (CA: %v), want those of the request, and no CA", c.KeyUsage, c.ExtKeyUsage, c.IsCA)
	}
	if slices.ContainsFunc(c.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(asn1.ObjectIdentifier{1, 2, 3}) }) {
		t.Error("the certificate has an extension that the request made up")
	}
	other, err := a.Certify(request(t, csr.LegacyUnknown, everything, "client auth"), now)
	if err != nil || read(t, other).SerialNumber.Cmp(c.SerialNumber) == 0 || c.SerialNumber.BitLen() < 64 {
		t.Errorf("the serial number is %v twice, %v", c.SerialNumber, err)
	}
	for range 40 { // RFC 5280 allows 20 bytes
		if text, err = a.Certify(request(t, csr.LegacyUnknown, nil, "client auth"), now); err != nil || read(t, text).SerialNumber.BitLen() > 128 {
			t.Fatalf("the serial number is %v, %v", read(t, text).SerialNumber, err)
		}
	}
}

// A certificate is valid for the requested time, within bounds, from some minutes ago, and never
// for longer than the signer's own.
func TestForHowLong(t *testing.T) {
	const day = 24 * time.Hour
	seconds := func(d time.Duration) *int32 { return new(int32(d / time.Second)) }
	for what, c := range map[string]struct {
		longest time.Duration
		asked   *int32
		own     time.Duration // the signer's own validity
		want    time.Duration
	}{
		"nothing is said":               {0, nil, 9999 * day, 365*day - 5*time.Minute},
		"a flag says":                   {48 * time.Hour, nil, 9999 * day, 48*time.Hour - 5*time.Minute},
		"less is asked for":             {0, seconds(12 * time.Hour), 9999 * day, 12*time.Hour - 5*time.Minute},
		"a working day":                 {0, seconds(8 * time.Hour), 9999 * day, 8*time.Hour - 5*time.Minute},
		"less than a working day":       {0, seconds(8*time.Hour - time.Second), 9999 * day, 8*time.Hour - time.Second},
		"an hour":                       {0, seconds(time.Hour), 9999 * day, time.Hour},
		"more is asked for":             {time.Hour, seconds(2 * time.Hour), 9999 * day, time.Hour},
		"ten minutes":                   {0, seconds(10 * time.Minute), 9999 * day, 10 * time.Minute},
		"too little":                    {0, seconds(time.Minute), 9999 * day, 10 * time.Minute},
		"less than nothing":             {0, seconds(-time.Hour), 9999 * day, 10 * time.Minute},
		"the flag says less than least": {time.Minute, seconds(30 * time.Second), 9999 * day, 10 * time.Minute},
		"the flag says no more":         {time.Minute, seconds(time.Minute), 9999 * day, 10 * time.Minute},
		"the signer's own ends before":  {0, nil, 30 * day, 30 * day},
		"the signer's own ends soon":    {0, seconds(10 * time.Minute), time.Minute, time.Minute},
	} {
		a := opened(t, files(t, newCA(t, "ca", now.Add(c.own))), c.longest)
		r := request(t, csr.KubeAPIServerClient, nil, "client auth")
		r.Spec.ExpirationSeconds = c.asked
		text, err := a.Certify(r, now)
		if err != nil {
			t.Errorf("%s: certify: %v", what, err)
			continue
		}
		if got := read(t, text); !got.NotAfter.Equal(now.Add(c.want)) || !got.NotBefore.Equal(now.Add(-5*time.Minute)) {
			t.Errorf("%s: the certificate is valid from %v to %v, want until %v", what, got.NotBefore, got.NotAfter, now.Add(c.want))
		}
	}
	a := opened(t, files(t, newCA(t, "ca", now)), 0)
	if text, err := a.Certify(request(t, csr.KubeAPIServerClient, nil, "client auth"), now); err == nil || !strings.Contains(err.Error(), "has expired at 2030-01-01T12:00:00Z") {
		t.Errorf("a signer that has expired: %s, %v", text, err)
	}
}

// Whatever the caller, a request that is not approved, was answered, is for another signer, breaks
// a rule, or is not signed with its own key is not signed.
func TestWhatIsNotSigned(t *testing.T) {
	signer := newCA(t, "ca", now.Add(time.Hour))
	a, err := authority.New(map[string]authority.Files{csr.KubeletClient: files(t, signer)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: "True"})
		}
	}
	for what, c := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   error
		says   string
	}{
		"as it should be":         {func(*certificatesv1.CertificateSigningRequest) {}, nil, ""},
		"not approved":            {func(r *certificatesv1.CertificateSigningRequest) { r.Status.Conditions = nil }, authority.ErrSettled, "not approved"},
		"denied":                  {condition(certificatesv1.CertificateDenied), authority.ErrSettled, "denied"},
		"failed":                  {condition(certificatesv1.CertificateFailed), authority.ErrSettled, "failed"},
		"answered":                {func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, authority.ErrSettled, "has its certificate"},
		"of a signer without key": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = csr.KubeAPIServerClient }, authority.ErrNoKey, "--cluster-signing-cert-file"},
		"of another signer":       {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example.com/signer" }, authority.ErrNoKey, ""},
		"for more": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, "server auth")
		}, authority.Violation("usages did not match [client auth digital signature key encipherment]"), ""},
		"unreadable": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = []byte("x") }, nil, "read what is asked for"},
		"of another key": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			r.Spec.Request = pem.EncodeToMemory(block)
		}, nil, "its own key"},
	} {
		r := request(t, csr.KubeletClient, nil, "client auth", "digital signature")
		c.change(r)
		text, err := a.Certify(r, now)
		fails := c.want != nil || c.says != ""
		if (err != nil) != fails || fails && text != nil || c.want != nil && !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v, want %v", what, text, err, c.want)
		}
	}
	r := request(t, csr.KubeletClient, nil, "client auth", "digital signature")
	legacy := opened(t, files(t, signer), 0)
	r.Spec.SignerName, r.Spec.Usages = csr.LegacyUnknown, []certificatesv1.KeyUsage{"flying"}
	if text, err := legacy.Certify(r, now); err == nil || !strings.Contains(err.Error(), "flying") {
		t.Errorf("a usage that is none: %q, %v", text, err)
	}
}

// Changed files are read again, and sign at once; files that are temporarily no pair leave the
// previous one in force.
func TestFilesThatChange(t *testing.T) {
	until := now.Add(time.Hour)
	first, second := newCA(t, "first", until), newCA(t, "second", until)
	f := files(t, first)
	a := opened(t, f, 0)
	by := func() string {
		text, err := a.Certify(request(t, csr.KubeAPIServerClient, nil, "client auth"), now)
		if err != nil {
			return err.Error()
		}
		return read(t, text).Issuer.CommonName
	}
	for _, step := range []struct {
		what        string
		certificate []byte
		key         []byte
		want        string
	}{
		{"as they were", first.certificate, first.pem, "first"},
		{"one of them is new", second.certificate, first.pem, "first"},
		{"both are new", second.certificate, second.pem, "second"},
		{"one is empty", nil, second.pem, "second"},
		{"one is none", second.certificate, []byte("canary-key"), "second"},
		{"a chain", slices.Concat(first.certificate, second.certificate), first.pem, "several certificates"},
		{"one is none again", first.certificate, []byte("canary-key"), "several certificates"},
		{"mended", first.certificate, first.pem, "first"},
	} {
		write(t, f.Certificate, step.certificate)
		write(t, f.Key, step.key)
		if got := by(); !strings.Contains(got, step.want) || strings.Contains(got, "canary") {
			t.Errorf("%s: signed by %q, want %q", step.what, got, step.want)
		}
	}
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	if got := by(); got != "first" {
		t.Errorf("without the file of the key the certificate is signed by %q, want \"first\" still", got)
	}
}

// Files that are not a certificate and its key are refused, and their content is not repeated.
func TestBadFiles(t *testing.T) {
	one, other := newCA(t, "one", now), newCA(t, "other", now)
	for want, c := range map[string]ca{
		"no certificate in PEM and its key": {certificate: one.certificate, pem: other.pem},
		"are no certificate in PEM":         {certificate: []byte("canary"), pem: one.pem},
		"and its key":                       {certificate: one.certificate, pem: pem.EncodeToMemory(&pem.Block{Type: "canary KEY", Bytes: []byte("canary")})},
		"several certificates":              {certificate: slices.Concat(one.certificate, other.certificate), pem: one.pem},
	} {
		_, err := authority.New(map[string]authority.Files{csr.KubeletServing: files(t, c)}, 0)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), csr.KubeletServing) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	there := files(t, one)
	for want, signers := range map[string]map[string]authority.Files{
		"no such file":             {csr.KubeletServing: {Certificate: there.Certificate, Key: "/nonexistent"}},
		"no such file or":          {csr.KubeletServing: {Certificate: "/nonexistent", Key: there.Key}},
		"no signer of Kubernetes'": {"example.com/signer": there},
	} {
		if _, err := authority.New(signers, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
