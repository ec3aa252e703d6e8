package access

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
	testclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrsigning"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
)

// RequestSigner is the controller of approved requests for certificates, together with the signing writer:
// the writer's own door carries out our commands.
var RequestSigner = frozen.Pair{Theirs: buildRequestSigners, Ours: csrsigning.New(csrsigning.Config{Signers: csr.Signers()}), Alone: frozen.NeverAlone, Fair: signed}

// Signed is the maximum validity of certificates, and SignerEnds the time until the signers' own certificate
// expires.
const (
	Signed     = 60 * 24 * time.Hour
	SignerEnds = 40 * 24 * time.Hour
)

// signerFiles are the certificate and the key of all signers.
var signerFiles = sync.OnceValue(func() authority.Files {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: objects.Now.Add(-time.Hour), NotAfter: objects.Now.Add(SignerEnds), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, again := x509.MarshalPKCS8PrivateKey(key)
	dir, made := os.MkdirTemp("", "millrace-oracle-signer-")
	files := authority.Files{Certificate: filepath.Join(dir, "ca.crt"), Key: filepath.Join(dir, "ca.key")}
	if err := errors.Join(err, again, made,
		os.WriteFile(files.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		panic(err)
	}
	return files
})

// buildRequestSigners runs upstream's four signers. They watch their files in goroutines that no bubble can
// hold, so these are not started, and are ended at once.
func buildRequestSigners(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	files, requests := signerFiles(), f.Certificates().V1().CertificateSigningRequests()
	type runner interface {
		Run(ctx context.Context, workers int)
	}
	var all, ends []runner
	for _, build := range []func(context.Context, kubernetes.Interface) (*signer.CSRSigningController, error){
		func(ctx context.Context, c kubernetes.Interface) (*signer.CSRSigningController, error) {
			return signer.NewKubeletServingCSRSigningController(ctx, c, requests, files.Certificate, files.Key, Signed)
		},
		func(ctx context.Context, c kubernetes.Interface) (*signer.CSRSigningController, error) {
			return signer.NewKubeletClientCSRSigningController(ctx, c, requests, files.Certificate, files.Key, Signed)
		},
		func(ctx context.Context, c kubernetes.Interface) (*signer.CSRSigningController, error) {
			return signer.NewKubeAPIServerClientCSRSigningController(ctx, c, requests, files.Certificate, files.Key, Signed)
		},
		func(ctx context.Context, c kubernetes.Interface) (*signer.CSRSigningController, error) {
			return signer.NewLegacyUnknownCSRSigningController(ctx, c, requests, files.Certificate, files.Key, Signed)
		},
	} {
		s, err := build(ctx, c)
		if err != nil {
			return nil, err
		}
		all = append(all, kcm.Field(s, "certificateController").(runner))
		ends = append(ends, kcm.Field(s, "dynamicCertReloader").(runner))
	}
	return func() {
		var running sync.WaitGroup
		for _, one := range all {
			running.Go(func() { one.Run(ctx, 1) })
		}
		running.Wait()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for _, one := range ends {
			one.Run(ended, 1)
		}
	}, nil
}

// signed lets the writer carry out our commands, and describes certificates by their content without serial
// numbers and signatures, which are random.
func signed(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	var written []effect.Effect
	for _, e := range ours {
		if e.Resource != "certificatesigningrequests/"+query.SubCertificate {
			written = append(written, e)
			continue
		}
		if body := asTheWriter(world[0].(*certificatesv1.CertificateSigningRequest)); body != nil {
			written = append(written, effect.Updated("certificatesigningrequests/status", e.Name, body))
		}
	}
	return exemption.Lets("serial-numbers", theirs, inPlain(theirs)), inPlain(written)
}

// asTheWriter is the writer's write when it certifies a request; nil if it refuses.
func asTheWriter(request *certificatesv1.CertificateSigningRequest) (written []byte) {
	d := signersDoor(storing{request, &written}, objects.Now)
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": request.UID, "resourceVersion": request.ResourceVersion}, "spec": map[string]any{"signerName": request.Spec.SignerName},
	})
	if err != nil {
		panic(err)
	}
	kind := kinds.CertificateSigningRequests
	d.Do(context.Background(), certifier, plan.Request{Verb: plan.Patch, Kind: kind.Name, Version: kind.Version, Name: request.Name, Subresource: query.SubCertificate, Body: body}, "")
	return written
}

// certifier is the signing actor of the writer.
var certifier = apply.Actor{Controller: "certificatesigningrequest-signing-controller", Identity: "certificate-controller"}

// signersDoor is the writer's door with the keys of all signers, in front of an API server.
func signersDoor(server http.RoundTripper, now time.Time) *apply.Client {
	files := map[string]authority.Files{}
	for _, name := range csr.Signers() {
		files[name] = signerFiles()
	}
	a, err := authority.New(files, Signed)
	if err != nil {
		panic(err)
	}
	d, err := apply.New(apply.Config{
		Authority: a, Clock: testclock.NewFakePassiveClock(now),
		REST: &rest.Config{Host: "https://oracle.invalid", WrapTransport: func(http.RoundTripper) http.RoundTripper { return server }},
	}, []apply.Actor{certifier})
	if err != nil {
		panic(err)
	}
	return d
}

// RequestSignerAtRest is the same controller on an API server that refuses some writes.
var RequestSignerAtRest = stage.Rest{
	Theirs: buildRequestSigners, Ours: RequestSigner.Ours, Kinds: []kinds.Kind{kinds.CertificateSigningRequests.Kind},
	Door: func(s *stage.Stage, now time.Time, r plan.Request) plan.Response {
		if r.Subresource != query.SubCertificate {
			return s.API.Do(r)
		}
		return signersDoor(staged{s}, now).Do(context.Background(), certifier, r, "")
	},
	Picture: signedPicture,
}

// staged makes a stage the API server of the writer's door: it serves requests for certificates, and accepts
// their statuses.
type staged struct{ *stage.Stage }

func (s staged) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := kinds.CertificateSigningRequests
	of, status := strings.CutSuffix(r.URL.Path, "/status")
	request := plan.Request{Verb: plan.Read, Kind: kind.Name, Version: kind.Version, Name: path.Base(of)}
	if status {
		request.Verb, request.Subresource = plan.Update, "status"
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		request.Body = body
	}
	answer := s.API.Do(request)
	body := answer.Body
	if answer.Code == http.StatusOK && status {
		request.Verb, request.Subresource = plan.Read, ""
		body = s.API.Do(request).Body
	} else if answer.Code != http.StatusOK {
		failed := stage.StatusError(answer).(*apierrors.StatusError).ErrStatus
		failed.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		text, err := json.Marshal(failed)
		if err != nil {
			return nil, err
		}
		body = text
	}
	return &http.Response{StatusCode: answer.Code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// signedPicture are the answers of requests. The time of a retry must not matter: the times of a certificate
// are rounded to the nearest minute.
func signedPicture(world []runtime.Object, told []string) (lines []string) {
	for _, obj := range world {
		r := obj.(*certificatesv1.CertificateSigningRequest)
		line := r.Name + " " + moment.ReplaceAllStringFunc(inWords(base64.StdEncoding.EncodeToString(r.Status.Certificate)), nearly)
		for _, c := range r.Status.Conditions {
			line += fmt.Sprintf("; %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
		lines = append(lines, line)
	}
	return append(lines, told...)
}

// moment matches a time in a certificate's description.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC`)

// nearly rounds a time to the nearest minute.
func nearly(text string) string {
	at, err := time.Parse("2006-01-02 15:04:05 -0700 MST", text)
	if err != nil {
		panic(err) // it is one
	}
	return at.Round(time.Minute).String()
}

// storing is an API server that has one object, and keeps the writes to its status.
type storing struct {
	request *certificatesv1.CertificateSigningRequest
	written *[]byte
}

func (s storing) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := json.Marshal(s.request)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodPut {
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		*s.written = body
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

// inPlain are effects with described certificates.
func inPlain(effects []effect.Effect) []effect.Effect {
	var all []effect.Effect
	for _, e := range effects {
		tree := effect.Parse([]byte(e.Body))
		if status, ok := tree["status"].(map[string]any); ok && status["certificate"] != nil {
			status["certificate"] = inWords(status["certificate"].(string))
			e.Body = effect.JSON(effect.NonEmpty(tree))
		}
		all = append(all, e)
	}
	return all
}

// inWords describes a certificate.
func inWords(encoded string) string {
	text, err := base64.StdEncoding.DecodeString(encoded)
	block, rest := pem.Decode(text)
	if err != nil || block == nil || len(rest) > 0 {
		return encoded
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return encoded
	}
	var extensions []string
	for _, e := range c.Extensions {
		extensions = append(extensions, fmt.Sprintf("%v %v %x", e.Id, e.Critical, e.Value))
	}
	return fmt.Sprintf("%s by %s from %v to %v, %v key %x, serial number of %d words, extensions %v, signed by %v", c.Subject, c.Issuer, c.NotBefore, c.NotAfter,
		c.PublicKeyAlgorithm, c.RawSubjectPublicKeyInfo, (c.SerialNumber.BitLen()+95)/128, extensions, c.SignatureAlgorithm)
}
