package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates contains the file names of one authority: the authority itself, a server, an administrator, and the key
// that signs the tokens of service accounts.
type certificates struct {
	authority, authorityKey string
	server, serverKey       string
	admin, adminKey         string
	serviceAccountKey       string
}

// certificatesIn finds the files in dir and creates the missing ones, so that a restarted server keeps its identity for
// clients.
func certificatesIn(dir string) (certificates, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	files := certificates{
		authority: in("authority.crt"), authorityKey: in("authority.key"),
		server: in("server.crt"), serverKey: in("server.key"),
		admin: in("admin.crt"), adminKey: in("admin.key"),
		serviceAccountKey: in("service-account.key"),
	}
	if _, err := os.Stat(files.serviceAccountKey); !errors.Is(err, fs.ErrNotExist) {
		return files, err // this file is written last: if it exists, all files exist
	}
	if err := files.make(); err != nil {
		return files, fmt.Errorf("make certificates: %w", err)
	}
	return files, nil
}

func (c certificates) make() error {
	authority, err := newCertificate(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "reference authority"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
	if err != nil {
		return err
	}
	server, err := newCertificate(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "reference"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, authority)
	if err != nil {
		return err
	}
	admin, err := newCertificate(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority)
	if err != nil {
		return err
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return errors.Join(
		authority.write(c.authority, c.authorityKey),
		server.write(c.server, c.serverKey),
		admin.write(c.admin, c.adminKey),
		writeKey(c.serviceAccountKey, signer),
	)
}

// certificate is a certificate with its private key.
type certificate struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// newCertificate sets the common fields, and signs the certificate with the issuer or with its own key.
func newCertificate(template *x509.Certificate, issuer *certificate) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, err
	}
	template.NotBefore = time.Now().Add(-time.Hour) // tolerates a clock that was set back a little
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	if issuer == nil {
		issuer = &certificate{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return &certificate{parsed, key}, err
}

func (c *certificate) write(path, keyPath string) error {
	return errors.Join(writeKey(keyPath, c.key), writePEM(path, "CERTIFICATE", c.Raw))
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
