package oracle;

import java.lang.reflect.Field;

/** Reads and writes private fields, those of superclasses included. */
final class Reflect {
    private Reflect() {
    }

    static Field field(Class<?> c, String name) throws NoSuchFieldException {
        for (Class<?> k = c; k != null; k = k.getSuperclass()) {
            try {
                Field f = k.getDeclaredField(name);
                f.setAccessible(true);
                return f;
            } catch (NoSuchFieldException ignored) {
                // look in the superclass
            }
        }
        throw new NoSuchFieldException(c + "." + name);
    }

    @SuppressWarnings("unchecked")
    static <T> T get(Object o, String name) {
        try {
            return (T) field(o.getClass(), name).get(o);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static void set(Object o, String name, Object v) {
        try {
            field(o.getClass(), name).set(o, v);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
