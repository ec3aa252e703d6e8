package localcluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// User is a user of the cluster; see [Cluster.Kubeconfig].
type User string

// The users of a cluster. Admin and Kwok may do everything, ControllerManager and
// Scheduler what Kubernetes' roles for them allow. Watcher may read, Writer may read
// and impersonate the controllers' service accounts, and Millrace has the rights of both.
const (
	Admin             User = "admin"
	ControllerManager User = "controller-manager"
	Scheduler         User = "scheduler"
	Kwok              User = "kwok"
	Watcher           User = "millrace-watcher"
	Writer            User = "millrace-writer"
	Millrace          User = "millrace"
)

// monitoring is a group for whose requests the API server continues traces, also if they
// impersonate another user. It may read metrics and health, nothing more.
const monitoring = "system:monitoring"

// users are the subjects of the users' certificates.
var users = []struct {
	user    User
	subject pkix.Name
}{
	{Admin, pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}},
	{ControllerManager, pkix.Name{CommonName: "system:kube-controller-manager"}},
	{Scheduler, pkix.Name{CommonName: "system:kube-scheduler"}},
	{Kwok, pkix.Name{CommonName: "kwok", Organization: []string{"system:masters"}}},
	{Watcher, pkix.Name{CommonName: string(Watcher)}},
	{Writer, pkix.Name{CommonName: string(Writer), Organization: []string{monitoring}}},
	{Millrace, pkix.Name{CommonName: string(Millrace), Organization: []string{monitoring}}},
}

// Kubeconfig is the kubeconfig file of a user.
func (c *Cluster) Kubeconfig(user User) string {
	return filepath.Join(c.Dir, string(user)+".kubeconfig")
}

// RootCAFile is the file of the certificate authority that kube-root-ca.crt publishes and
// that signs certificate requests.
func (c *Cluster) RootCAFile() string { return c.key("ca.crt") }

// RootCAKeyFile is the key of that authority.
func (c *Cluster) RootCAKeyFile() string { return c.key("ca.key") }

// ServiceAccountKeyFile is the private key that signs service account tokens.
func (c *Cluster) ServiceAccountKeyFile() string { return c.key("sa.key") }

func (c *Cluster) key(file string) string { return filepath.Join(c.Dir, "pki", file) }

// writeKeys makes the keys and certificates that kubeadm makes, unless those of an earlier
// cluster exist, and a kubeconfig for each user.
func (c *Cluster) writeKeys() error {
	if err := os.MkdirAll(filepath.Join(c.Dir, "pki"), 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	settle := c.makeKeys
	if _, err := os.Stat(c.ServiceAccountKeyFile()); c.options.Keep && err == nil {
		settle = c.renameUsers
	}
	if err := settle(); err != nil {
		return fmt.Errorf("make keys and certificates: %w", err)
	}
	for _, u := range users {
		if err := c.writeKubeconfig(u.user); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", u.user, err)
		}
	}
	return nil
}

func (c *Cluster) makeKeys() error {
	ca, err := c.newAuthority("ca", "kubernetes")
	if err != nil {
		return err
	}
	proxyCA, err := c.newAuthority("front-proxy-ca", "front-proxy-ca")
	if err != nil {
		return err
	}
	server, err := url.Parse(c.Server)
	if err != nil {
		return fmt.Errorf("read the API server's address: %w", err)
	}
	issues := []struct {
		file    string
		from    *authority
		subject pkix.Name
		server  bool
		hosts   []string
	}{
		{"apiserver", ca, pkix.Name{CommonName: "kube-apiserver"}, true, []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "10.96.0.1", server.Hostname()}},
		{"kubelet", ca, pkix.Name{CommonName: "system:node:simulated", Organization: []string{"system:nodes"}}, true, nodeHosts()},
		{"apiserver-kubelet-client", ca, pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}, false, nil},
		{"front-proxy-client", proxyCA, pkix.Name{CommonName: "front-proxy-client"}, false, nil},
	}
	for _, i := range issues {
		if err := c.issue(i.from, i.file, i.subject, i.server, i.hosts); err != nil {
			return err
		}
	}
	for _, u := range users {
		if err := c.issue(ca, string(u.user), u.subject, false, nil); err != nil {
			return err
		}
	}
	return c.makeServiceAccountKey()
}

// renameUsers issues new certificates for users of a kept cluster whose name or groups
// have changed since it was created.
func (c *Cluster) renameUsers() error {
	ca, err := tls.LoadX509KeyPair(c.RootCAFile(), c.RootCAKeyFile())
	if err != nil {
		return fmt.Errorf("load the kept authority: %w", err)
	}
	from := &authority{certificate: ca.Leaf, key: ca.PrivateKey.(crypto.Signer)}
	for _, u := range users {
		kept, err := tls.LoadX509KeyPair(c.key(string(u.user)+".crt"), c.key(string(u.user)+".key"))
		if err == nil && kept.Leaf.Subject.String() == u.subject.String() {
			continue
		}
		if err := c.issue(from, string(u.user), u.subject, false, nil); err != nil {
			return err
		}
	}
	return nil
}

// makeServiceAccountKey makes the key pair for tokens; RSA, as kubeadm's.
func (c *Cluster) makeServiceAccountKey() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("generate service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode service account key: %w", err)
	}
	if err := c.writePEM("sa.pub", "PUBLIC KEY", public); err != nil {
		return err
	}
	return c.writePEM("sa.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func (c *Cluster) newAuthority(file, name string) (*authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	}
	a := &authority{certificate: template}
	key, err := c.sign(a, file, template)
	if err != nil {
		return nil, err
	}
	a.key = key
	return a, nil
}

// issue makes a key, and a certificate for it.
func (c *Cluster) issue(from *authority, file string, subject pkix.Name, server bool, hosts []string) error {
	template := &x509.Certificate{
		Subject: subject, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if server {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, err := c.sign(from, file, template)
	return err
}

// sign completes and signs a certificate. An authority without a key gives a self-signed
// one.
func (c *Cluster) sign(from *authority, file string, template *x509.Certificate) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of %s: %w", file, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.AddDate(10, 0, 0)
	signer := from.key
	if signer == nil {
		signer = key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, from.certificate, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", file, err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key of %s: %w", file, err)
	}
	if err := c.writePEM(file+".key", "EC PRIVATE KEY", encoded); err != nil {
		return nil, err
	}
	return key, c.writePEM(file+".crt", "CERTIFICATE", certificate)
}

func (c *Cluster) writePEM(file, kind string, data []byte) error {
	if err := os.WriteFile(c.key(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// writeKubeconfig writes a kubeconfig with embedded certificates, so that it can be copied.
func (c *Cluster) writeKubeconfig(user User) error {
	read := func(file string, into *[]byte) (err error) { *into, err = os.ReadFile(c.key(file)); return err }
	cluster, auth := api.NewCluster(), api.NewAuthInfo()
	cluster.Server = c.Server
	for _, part := range []struct {
		file string
		into *[]byte
	}{
		{"ca.crt", &cluster.CertificateAuthorityData},
		{string(user) + ".crt", &auth.ClientCertificateData},
		{string(user) + ".key", &auth.ClientKeyData},
	} {
		if err := read(part.file, part.into); err != nil {
			return err
		}
	}
	config := api.NewConfig()
	config.Clusters["millrace"] = cluster
	config.AuthInfos[string(user)] = auth
	config.Contexts["millrace"] = &api.Context{Cluster: "millrace", AuthInfo: string(user)}
	config.CurrentContext = "millrace"
	return clientcmd.WriteToFile(*config, c.Kubeconfig(user))
}
