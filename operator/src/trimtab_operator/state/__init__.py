"""What the policies of one messaging cluster share between reconciles. No writes, no Kopf, no HTTP."""
